"""fenchel: test-time adaptation derived from the training loss.

Tell it your training loss, wrap your model, keep predicting::

    adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=6.0))
    for images in stream:
        logits = adapted(images)
"""

from fenchel._version import __version__
from fenchel.adapters import AdaptationWarning, Adapter
from fenchel.api import adapt
from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Entmax15,
    ExponentialLoss,
    FocalLoss,
    GeneralizedCrossEntropy,
    LabelSmoothing,
    PolyLoss,
    ProbabilityLoss,
    Sparsemax,
    SquaredLoss,
    derive,
)
from fenchel.objectives import (
    Conjugate,
    Entropy,
    HardPseudoLabel,
    LearnedObjective,
    MarginalEntropy,
    Quadratic,
    RobustPseudoLabel,
    ScaledEntropy,
    SoftPseudoLabel,
)

__all__ = [
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
    "LabelSmoothing",
    "LearnedObjective",
    "MarginalEntropy",
    "PolyLoss",
    "ProbabilityLoss",
    "Quadratic",
    "RobustPseudoLabel",
    "ScaledEntropy",
    "SoftPseudoLabel",
    "Sparsemax",
    "SquaredLoss",
    "__version__",
    "adapt",
    "derive",
]
