"""Training losses and the test-time objectives they imply: one file per loss.

`fenchel.losses.derived` handles losses of one's own, written as functions. It is loaded when it is first
needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fenchel.losses.base import LOSSES, Loss, parse
from fenchel.losses.binary_cross_entropy import BinaryCrossEntropy
from fenchel.losses.cross_entropy import CrossEntropy
from fenchel.losses.entmax15 import Entmax15
from fenchel.losses.exponential import ExponentialLoss
from fenchel.losses.focal import FocalLoss
from fenchel.losses.generalized_cross_entropy import GeneralizedCrossEntropy
from fenchel.losses.label_smoothing import LabelSmoothing
from fenchel.losses.labels import LabelSpace, OneOfMany, Signed, YesOrNo
from fenchel.losses.own import open_loss
from fenchel.losses.poly import PolyLoss
from fenchel.losses.probability import ProbabilityLoss
from fenchel.losses.sparsemax import Sparsemax
from fenchel.losses.squared import SquaredLoss
from fenchel.names import import_submodules

if TYPE_CHECKING:
    from fenchel.losses.derived.derive import DerivedLoss, derive
    from fenchel.losses.derived.from_torch import from_torch
    from fenchel.losses.derived.implicit import SingularLossError, UnsolvedLabelWarning
    from fenchel.losses.derived.reading import UnsuitableLossError

import_submodules(__name__, __path__)

_ON_DEMAND = {
    "DerivedLoss": "fenchel.losses.derived.derive",
    "SingularLossError": "fenchel.losses.derived.implicit",
    "UnsolvedLabelWarning": "fenchel.losses.derived.implicit",
    "UnsuitableLossError": "fenchel.losses.derived.reading",
    "derive": "fenchel.losses.derived.derive",
    "from_torch": "fenchel.losses.derived.from_torch",
}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module 'fenchel.losses' has no attribute {name!r}")


__all__ = [
    "LOSSES",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "DerivedLoss",
    "Entmax15",
    "ExponentialLoss",
    "FocalLoss",
    "GeneralizedCrossEntropy",
    "LabelSmoothing",
    "LabelSpace",
    "Loss",
    "OneOfMany",
    "PolyLoss",
    "ProbabilityLoss",
    "Signed",
    "SingularLossError",
    "Sparsemax",
    "SquaredLoss",
    "UnsolvedLabelWarning",
    "UnsuitableLossError",
    "YesOrNo",
    "derive",
    "from_torch",
    "open_loss",
    "parse",
]
