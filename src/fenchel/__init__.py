"""fenchel: test-time adaptation derived from the training loss.

Tell it your training loss, wrap your model, keep predicting::

    adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=6.0))
    for images in stream:
        logits = adapted(images)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fenchel._version import __version__
from fenchel.adapters import (
    SGD,
    Adam,
    AdaptationWarning,
    Adapter,
    Health,
    Method,
    Session,
    online,
)
from fenchel.api import adapt
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

__all__ = [
    "SGD",
    "Adam",
    "AdaptationWarning",
    "Adapter",
    "BinaryCrossEntropy",
    "Conjugate",
    "CrossEntropy",
    "Entmax15",
    "Entropy",
    "ExponentialLoss",
    "FocalLoss",
    "GeneralizedCrossEntropy",
    "HardPseudoLabel",
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
    "RobustPseudoLabel",
    "ScaledEntropy",
    "Session",
    "SoftPseudoLabel",
    "Sparsemax",
    "SquaredLoss",
    "__version__",
    "adapt",
    "derive",
    "load_plugin",
    "online",
    "register",
]

if TYPE_CHECKING:
    from fenchel.losses import derive

_ON_DEMAND = (
    "bench",
    "data",
    "demo",
    "models",
    "paper",
    "performance",
    "predict",
    "report",
    "train",
)
"""Packages that `import fenchel` does not load; the first use of `fenchel.data` and the like does."""


def __getattr__(name: str) -> Any:
    if name == "derive":
        return import_module("fenchel.losses").derive
    if name in _ON_DEMAND:
        return import_module(f"fenchel.{name}")
    raise AttributeError(f"module 'fenchel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
