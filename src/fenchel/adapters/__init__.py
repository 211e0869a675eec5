"""The adapter: a pure step around a model that is never modified."""

from fenchel.adapters.adapter import Adapter, Health, Settings
from fenchel.adapters.guards import AdaptationWarning
from fenchel.adapters.methods import METHODS, Method
from fenchel.adapters.optimizers import SGD, Adam, Optimizer, TorchOptimizer
from fenchel.adapters.state import State

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdaptationWarning",
    "Adapter",
    "Health",
    "Method",
    "Optimizer",
    "Settings",
    "State",
    "TorchOptimizer",
]
