"""The adapter: a pure step around a model that is never modified."""

from fenchel.adapters.adapter import Adapter
from fenchel.adapters.core import Settings
from fenchel.adapters.guards import AdaptationWarning, UnboundedObjectiveWarning
from fenchel.adapters.harm import HarmWarning, Report
from fenchel.adapters.health import Health
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import METHODS, Method
from fenchel.adapters.online import online
from fenchel.adapters.optimizers import SGD, Adam, Optimizer, TorchOptimizer
from fenchel.adapters.outputs import Scores
from fenchel.adapters.passes import Gradient, Passes
from fenchel.adapters.session import Session
from fenchel.adapters.state import State

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdaptationWarning",
    "Adapter",
    "Gradient",
    "HarmWarning",
    "Health",
    "Inputs",
    "Method",
    "Optimizer",
    "Passes",
    "Report",
    "Scores",
    "Session",
    "Settings",
    "State",
    "TorchOptimizer",
    "UnboundedObjectiveWarning",
    "online",
]
