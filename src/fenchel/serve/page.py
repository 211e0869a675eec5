"""The pages of the service: its streams and their health over time, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fenchel.report.html import render


def streams_page() -> str:
    """The page of the streams. It holds no data: its script asks the service for them, with the token."""
    return render("streams.html", script="streams.js")


def api_page(described: Mapping[str, Any]) -> str:
    """What can be asked, from the description of the service (OpenAPI)."""
    calls = [
        {
            "method": method.upper(),
            "path": path,
            "about": call.get("description", ""),
            "parameters": call.get("parameters", []),
            "bodies": list(call.get("requestBody", {}).get("content", {})),
            "answers": _answers(call),
        }
        for path, methods in described["paths"].items()
        for method, call in methods.items()
    ]
    return render("api.html", title=described["info"]["title"], calls=calls)


def _answers(call: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each status and what it means, but for those that the framework adds by itself."""
    ours = call.get("responses", {})
    return [(status, told["description"]) for status, told in sorted(ours.items())]
