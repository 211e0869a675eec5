"""fenchel: test-time adaptation derived from the training loss."""

from fenchel._version import __version__

__all__ = ["__version__"]
