"""The request of a webhook: the fire as JSON, or the hook's own body with its placeholders replaced.  Pure.

A placeholder is `{{name}}`.  Its value is escaped for a JSON string, so `{"text": "{{reason}}"}` is valid
JSON for every reason.
"""

import json
from typing import Any

from detent.model import Fire, Request
from detent.text import listed, nearest, quote

TEXTS = ("app", "job", "fire", "hook", "due", "outcome", "reason", "cause", "output_tail")
NUMBERS = ("attempts", "exit_code", "duration_ms", "instants")  # null if there is no value
NAMES = (*TEXTS, *NUMBERS)
JSON_TYPE = ("Content-Type", "application/json")
_OPEN, _CLOSE = "{{", "}}"


def hook_request(request: Request, fire: Fire) -> Request:
    headers = request.headers if _has_type(request.headers) else (*request.headers, JSON_TYPE)
    body = _filled(request.body, fire) if request.body else fire.payload
    return request._replace(headers=headers, body=body)


def body_fault(body: str, headers: Any) -> tuple[str, str]:
    """Return what is wrong with the body of a webhook, and advice; two empty texts if it is valid."""
    parts = _split(body)
    for name in parts[1::2]:
        if name not in NAMES:
            near = nearest(name, NAMES)
            advice = f"did you mean {quote(near)}?" if near else f"allowed are {listed(NAMES, 'and')}"
            return f"unknown placeholder {quote(_OPEN + name + _CLOSE)}", advice
    if any(_OPEN in text for text in parts[::2]):
        return f"{_OPEN} is not closed", f"write a placeholder as {_OPEN}fire{_CLOSE}"
    if _has_type(headers.items()):
        return "", ""
    try:
        json.loads("0".join(parts[::2]))  # a digit is valid JSON inside and outside a text
    except ValueError:
        return "the body is not JSON", "quote its texts, or give the hook its own Content-Type header"
    return "", ""


def _has_type(headers: Any) -> bool:
    return any(name.lower() == JSON_TYPE[0].lower() for name, _ in headers)


def _split(body: str) -> list[str]:
    """Return text and placeholder names alternately."""
    first, *rest = body.split(_OPEN)
    parts = [first]
    for piece in rest:
        name, close, text = piece.partition(_CLOSE)
        if close:
            parts += [name.strip(), text]
        else:  # not closed: plain text
            parts[-1] += _OPEN + piece
    return parts


def _filled(body: str, fire: Fire) -> str:
    values: dict[str, Any] = json.loads(fire.payload)
    values["app"], _, values["job"] = fire.job.partition(".")
    parts = _split(body)
    parts[1::2] = [_json_text(values.get(name), name) for name in parts[1::2]]
    return "".join(parts)


def _json_text(value: Any, name: str) -> str:
    if value is None:
        return "null" if name in NUMBERS else ""
    return json.dumps(value)[1:-1] if type(value) is str else json.dumps(value)
