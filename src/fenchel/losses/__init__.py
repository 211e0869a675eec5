"""Training losses and the test-time objectives they imply."""

from fenchel.losses.base import LOSSES, Loss, parse
from fenchel.losses.binary_cross_entropy import BinaryCrossEntropy
from fenchel.losses.cross_entropy import CrossEntropy
from fenchel.losses.derive import DerivedLoss, derive
from fenchel.losses.entmax15 import Entmax15
from fenchel.losses.exponential import ExponentialLoss
from fenchel.losses.focal import FocalLoss
from fenchel.losses.from_torch import from_torch
from fenchel.losses.generalized_cross_entropy import GeneralizedCrossEntropy
from fenchel.losses.implicit import SingularLossError, UnsolvedLabelWarning
from fenchel.losses.label_smoothing import LabelSmoothing
from fenchel.losses.labels import LabelSpace, OneOfMany, Signed, YesOrNo
from fenchel.losses.poly import PolyLoss
from fenchel.losses.probability import ProbabilityLoss
from fenchel.losses.reading import UnsuitableLossError
from fenchel.losses.sparsemax import Sparsemax
from fenchel.losses.squared import SquaredLoss
from fenchel.names import import_submodules

import_submodules(__name__, __path__)

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
    "parse",
]
