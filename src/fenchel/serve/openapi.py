"""What the description of the service (OpenAPI) says beside what the code says: bodies, answers, refusals."""

from __future__ import annotations

from typing import Any

from fenchel.serve.reading import FILES, NPY, PICTURES

_REFUSAL = {
    "application/json": {
        "schema": {"type": "object", "properties": {"error": {"type": "string"}}},
    }
}
_REASONS = {
    400: "The request is not whole, or a header is wrong.",
    401: "The token is missing or wrong.",
    403: "A page or a name from elsewhere.",
    404: "There is no such stream.",
    409: "The file of the stream cannot be used.",
    413: "Too many bytes, images or pixels.",
    415: "The images have another type.",
    422: "A name that is none, or something that is no image, or none that the network takes.",
    429: "There are as many streams as there may be.",
    507: "The state cannot be written.",
    503: "Too busy, or a replica is starting again: send the request again, with the same Idempotency-Key.",
}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    always = (403,)
    return {
        status: {"description": _REASONS[status], "content": _REFUSAL}
        for status in (*statuses, *always)
    }


_NUMBERS = {
    "prediction": "integer",
    "name": "string",
    "confidence": "number",
    "entropy": "number",
    "source_prediction": "integer",
    "source_name": "string",
    "source_confidence": "number",
}
_HEALTH = {
    "verdict": "string",
    "reason": "string",
    **dict.fromkeys(("batches", "samples", "updates", "skips", "left_out"), "integer"),
    **dict.fromkeys(("resets", "pulled_back", "fell_back"), "integer"),
    "mode": "string",
    "time": "number",
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    typed = {
        name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()
    }
    return {"type": "object", "properties": typed}


def _answer(about: str, properties: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": _object(properties)}}
    return {200: {"description": about, "content": content}}


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORM = {
    "schema": _object(
        {"images": {"type": "array", "items": {"type": "string", "format": "binary"}}}
    )
}
_COURSE = {"type": "array", "items": {"type": "object"}}

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 100},
    "description": "Names the request: sent again, it is answered as before, and nothing happens twice.",
}

PREDICT: dict[str, Any] = {
    "summary": "Predict",
    "responses": {
        **_answer(
            "One prediction per image; the source's word is null where it was not asked.",
            {
                "stream": "string",
                "key": "string",
                "batch": "integer",
                "event": "string",
                "predictions": {"type": "array", "items": _object({"image": "string", **_NUMBERS})},
                "health": _object(_HEALTH),
            },
        ),
        **_refusals(400, 401, 409, 413, 415, 422, 429, 503, 507),
    },
    "openapi_extra": {
        "parameters": [_KEY],
        "requestBody": {
            "required": True,
            "content": {
                FILES: _FORM,
                NPY[0]: _BINARY,
                **dict.fromkeys(PICTURES, _BINARY),
            },
        },
    },
}
DESCRIBE: dict[str, Any] = {
    "summary": "Health",
    "responses": {
        **_answer("The stream.", {"stream": "string", **_HEALTH, "course": _COURSE}),
        **_refusals(401, 404, 409, 422, 503),
    },
}
RESET: dict[str, Any] = {
    "summary": "Reset",
    "responses": {
        **_answer("The stream after it.", {"stream": "string", "key": "string", **_HEALTH}),
        **_refusals(400, 401, 404, 409, 422, 503, 507),
    },
    "openapi_extra": {"parameters": [_KEY]},
}
OVERVIEW: dict[str, Any] = {
    "summary": "Streams",
    "responses": {
        **_answer(
            "The streams that were used last.",
            {
                "streams": {"type": "array", "items": {"type": "object"}},
                "known": "integer",
                "replicas": {"type": "array", "items": {"type": "boolean"}},
            },
        ),
        **_refusals(401, 422),
    },
}
METRICS: dict[str, Any] = {
    "summary": "Metrics",
    "responses": {200: {"description": "Plain text, one number per line."}, **_refusals(401)},
}
ALIVE: dict[str, Any] = {
    "summary": "Alive",
    "responses": {200: {"description": "It does."}},
}
