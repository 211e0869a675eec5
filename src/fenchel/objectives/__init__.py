"""Unsupervised objectives: one value per sample, from logits alone."""

from fenchel.names import import_submodules
from fenchel.objectives.base import OBJECTIVES, Objective, weighted_mean
from fenchel.objectives.entropy import Entropy, ScaledEntropy
from fenchel.objectives.learned import LearnedObjective
from fenchel.objectives.loss_network import LossNetwork
from fenchel.objectives.marginal_entropy import MarginalEntropy
from fenchel.objectives.pseudo_label import Conjugate, HardPseudoLabel, SoftPseudoLabel
from fenchel.objectives.quadratic import Quadratic
from fenchel.objectives.robust import RobustPseudoLabel
from fenchel.objectives.symmetrised import Symmetrised

import_submodules(__name__, __path__)

__all__ = [
    "OBJECTIVES",
    "Conjugate",
    "Entropy",
    "HardPseudoLabel",
    "LearnedObjective",
    "LossNetwork",
    "MarginalEntropy",
    "Objective",
    "Quadratic",
    "RobustPseudoLabel",
    "ScaledEntropy",
    "SoftPseudoLabel",
    "Symmetrised",
    "weighted_mean",
]
