"""Pages from templates: self-contained, escaped, nothing from the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from fenchel._version import __version__
from fenchel.report.style import as_svg

LARGEST_SCALE = 1.6
"""Pixels per point up to which a figure grows with the page: small figures keep the letters of large ones."""


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


def drawn(draw: Callable[[bool], Figure], label: str, prefix: str) -> Markup:
    """A figure for a page, drawn twice: `draw(False)` for a wide page, `draw(True)` for a phone.

    The page's style shows one of the two. `label` says to those who cannot see it what it shows; `prefix`
    keeps the ids of several figures apart.
    """
    kinds = (("wide", False), ("narrow", True))
    return Markup("").join(
        Markup('<div class="{}">{}</div>').format(kind, _svg(draw(narrow), label, prefix + kind))
        for kind, narrow in kinds
    )


def _svg(figure: Figure, label: str, prefix: str) -> Markup:
    largest = round(LARGEST_SCALE * 72 * figure.get_figwidth())
    attributes = Markup('role="img" aria-label="{}" style="max-width:{}px"').format(label, largest)
    return Markup(as_svg(figure, prefix).replace("<svg ", f"<svg {attributes} ", 1))
