"""Pages from templates: self-contained, escaped, nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

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


def render(template: str, *, script: str = "", **values: Any) -> str:
    """The text of a page; every value is escaped unless the template says that it is markup.

    script: the name of a script beside the templates. The page allows that very text to run (by
    its hash) and nothing else.
    """
    text = files("fenchel.report").joinpath(f"templates/{script}").read_text() if script else ""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            version=__version__,
            script=Markup(text),  # our own file, not data
            script_source=Markup(f"'sha256-{digest}'" if script else "'none'"),
            **values,
        )
    )
