"""Settings for adapting one model, chosen on images of its source that are shifted here.

`fenchel.calibrate(model, loss, images, labels)` returns a `Calibration`; see docs/settings.md.
"""

from fenchel.calibration.calibrate import calibrate
from fenchel.calibration.shifting import SHIFTS
from fenchel.methods.calibrated import Calibration

__all__ = ["SHIFTS", "Calibration", "calibrate"]
