"""Pages from templates: self-contained, escaped, nothing from the network."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fenchel._version import __version__


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fenchel.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    """The text of a page; every value is escaped unless the template says that it is markup."""
    return _environment().get_template(template).render(version=__version__, **values)
