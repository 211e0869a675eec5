"""Objects of the user's own code by name; see `fenchel.own_code`."""

from fenchel.own_code import load_object

__all__ = ["load_object"]
