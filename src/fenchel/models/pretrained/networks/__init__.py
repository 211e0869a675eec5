"""One file per network; importing this package registers them all."""

from fenchel.names import import_submodules

import_submodules(__name__, __path__)
