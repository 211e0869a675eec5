"""The demo: real digits, a small network, several shifts, every method. It shows all results."""

from fenchel.demo.experiment import Outcome, run
from fenchel.demo.page import write_page

__all__ = ["Outcome", "run", "write_page"]
