"""fenchel: test-time adaptation derived from the training loss.

Tell it your training loss, wrap your model, keep predicting::

    adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=6.0))
    for images in stream:
        logits = adapted(images)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fenchel._version import __version__

if TYPE_CHECKING:
    from fenchel.adapters import (
        SGD,
        Adam,
        AdaptationWarning,
        Adapter,
        HarmWarning,
        Health,
        Method,
        Report,
        Session,
        online,
    )
    from fenchel.api import adapt
    from fenchel.calibration import Calibration, calibrate
    from fenchel.losses import (
        BinaryCrossEntropy,
        CrossEntropy,
        Entmax15,
        ExponentialLoss,
        FocalLoss,
        GeneralizedCrossEntropy,
        LabelSmoothing,
        Loss,
        PolyLoss,
        ProbabilityLoss,
        Sparsemax,
        SquaredLoss,
        derive,
    )
    from fenchel.names import register
    from fenchel.objectives import (
        Conjugate,
        Entropy,
        HardPseudoLabel,
        LearnedObjective,
        MarginalEntropy,
        Objective,
        Quadratic,
        RobustPseudoLabel,
        ScaledEntropy,
        SoftPseudoLabel,
    )
    from fenchel.plugins import load_plugin
    from fenchel.streams import Streams

__all__ = [
    "SGD",
    "Adam",
    "AdaptationWarning",
    "Adapter",
    "BinaryCrossEntropy",
    "Calibration",
    "Conjugate",
    "CrossEntropy",
    "Entmax15",
    "Entropy",
    "ExponentialLoss",
    "FocalLoss",
    "GeneralizedCrossEntropy",
    "HardPseudoLabel",
    "HarmWarning",
    "Health",
    "LabelSmoothing",
    "LearnedObjective",
    "Loss",
    "MarginalEntropy",
    "Method",
    "Objective",
    "PolyLoss",
    "ProbabilityLoss",
    "Quadratic",
    "Report",
    "RobustPseudoLabel",
    "ScaledEntropy",
    "Session",
    "SoftPseudoLabel",
    "Sparsemax",
    "SquaredLoss",
    "Streams",
    "__version__",
    "adapt",
    "calibrate",
    "derive",
    "load_plugin",
    "online",
    "register",
]

_HOMES = {
    "fenchel.adapters": (
        "Adam",
        "AdaptationWarning",
        "Adapter",
        "HarmWarning",
        "Health",
        "Method",
        "Report",
        "SGD",
        "Session",
        "online",
    ),
    "fenchel.api": ("adapt",),
    "fenchel.calibration": ("Calibration", "calibrate"),
    "fenchel.losses": (
        "BinaryCrossEntropy",
        "CrossEntropy",
        "Entmax15",
        "ExponentialLoss",
        "FocalLoss",
        "GeneralizedCrossEntropy",
        "LabelSmoothing",
        "Loss",
        "PolyLoss",
        "ProbabilityLoss",
        "Sparsemax",
        "SquaredLoss",
        "derive",
    ),
    "fenchel.names": ("register",),
    "fenchel.objectives": (
        "Conjugate",
        "Entropy",
        "HardPseudoLabel",
        "LearnedObjective",
        "MarginalEntropy",
        "Objective",
        "Quadratic",
        "RobustPseudoLabel",
        "ScaledEntropy",
        "SoftPseudoLabel",
    ),
    "fenchel.plugins": ("load_plugin",),
    "fenchel.streams": ("Streams",),
}
"""Where the public names live. They are loaded at their first use, and torch with them: the command line can
answer `--help` and complete names without it."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = (
    "adapters",
    "api",
    "bench",
    "calibration",
    "data",
    "demo",
    "losses",
    "methods",
    "models",
    "names",
    "objectives",
    "paper",
    "performance",
    "plugins",
    "predict",
    "report",
    "serve",
    "streams",
    "train",
)


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
    elif name in _PACKAGES:
        found = import_module(f"fenchel.{name}")
    else:
        raise AttributeError(f"module 'fenchel' has no attribute {name!r}")
    globals()[name] = found  # next time it is simply there
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_PACKAGES})
