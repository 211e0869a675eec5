"""Where cells run: here, in processes of this machine, or on a Ray cluster."""

from fenchel.bench.executors.base import EXECUTORS, Executor, make_executor
from fenchel.names import import_submodules

import_submodules(__name__, __path__)

__all__ = ["EXECUTORS", "Executor", "make_executor"]
