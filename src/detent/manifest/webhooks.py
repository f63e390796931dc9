"""The request that a webhook gets: the fire as JSON, or the hook's own body with its placeholders filled in.

A placeholder is `{{name}}`.  Its value is escaped for a JSON string, so `{"text": "{{reason}}"}` stays JSON
whatever the reason is.  Pure.
"""

import json
from typing import Any

from detent.model import Fire, Request
from detent.text import did_you_mean, listed, quote

TEXTS = ("app", "job", "fire", "hook", "due", "outcome", "reason", "cause", "output_tail")
NUMBERS = ("attempts", "exit_code", "duration_ms", "instants")  # null where there is none
NAMES = (*TEXTS, *NUMBERS)
JSON_TYPE = ("Content-Type", "application/json")
_OPEN, _CLOSE = "{{", "}}"


def hook_request(request: Request, fire: Fire) -> Request:
    """The request of a hook for the fire that calls it."""
    headers = request.headers if _has_type(request.headers) else (*request.headers, JSON_TYPE)
    body = _filled(request.body, fire) if request.body else fire.payload
    return request._replace(headers=headers, body=body)


def body_fault(body: str, headers: Any) -> str:
    """What is wrong with the body of a webhook; "" where nothing is."""
    parts = _split(body)
    for name in parts[1::2]:
        if name not in NAMES:
            meant = did_you_mean(name, NAMES) or f"; allowed are {listed(NAMES)}"
            return f"unknown placeholder {quote(_OPEN + name + _CLOSE)}{meant}"
    if any(_OPEN in text for text in parts[::2]):
        return f"{_OPEN} is not closed: a placeholder is written {_OPEN}fire{_CLOSE}"
    if _has_type(headers.items()):
        return ""
    try:
        json.loads("0".join(parts[::2]))  # a digit fits within a text and without
    except ValueError:
        return "it is not JSON; quote its texts, or give the hook a Content-Type header of its own"
    return ""


def _has_type(headers: Any) -> bool:
    return any(name.lower() == JSON_TYPE[0].lower() for name, _ in headers)


def _split(body: str) -> list[str]:
    """Text and names of placeholders, in turn."""
    first, *rest = body.split(_OPEN)
    parts = [first]
    for piece in rest:
        name, close, text = piece.partition(_CLOSE)
        if close:
            parts += [name.strip(), text]
        else:  # nothing closes it: it is text
            parts[-1] += _OPEN + piece
    return parts


def _filled(body: str, fire: Fire) -> str:
    told: dict[str, Any] = json.loads(fire.payload)
    told["app"], _, told["job"] = fire.job.partition(".")
    parts = _split(body)
    parts[1::2] = [_shown(told.get(name), name) for name in parts[1::2]]
    return "".join(parts)


def _shown(value: Any, name: str) -> str:
    if value is None:
        return "null" if name in NUMBERS else ""
    return json.dumps(value)[1:-1] if type(value) is str else json.dumps(value)
