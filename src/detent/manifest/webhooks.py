"""The request of a webhook: the fire as JSON, or the hook's own body with its placeholders replaced.  Pure.

A placeholder is `{{name}}`.  Its value is escaped for a JSON string, so `{"text": "{{reason}}"}` is valid
JSON for every reason.
"""

import json
from typing import Any

from detent.manifest.placeholders import fill_in, placeholder_fault, split_text
from detent.model import Fire, Request

TEXTS = ("app", "job", "fire", "hook", "due", "outcome", "reason", "cause", "output_tail")
NUMBERS = ("attempts", "exit_code", "duration_ms", "instants", "late_s")  # null if there is no value
NAMES = (*TEXTS, *NUMBERS)
JSON_TYPE = ("Content-Type", "application/json")


def hook_request(request: Request, fire: Fire) -> Request:
    headers = request.headers if _has_type(request.headers) else (*request.headers, JSON_TYPE)
    if not request.body:
        return request._replace(headers=headers, body=fire.payload)
    values = values_of(fire)
    body = fill_in(request.body, lambda name: _json_text(values.get(name), name))
    return request._replace(headers=headers, body=body)


def body_fault(body: str, headers: Any) -> tuple[str, str]:
    """Return what is wrong with the body of a webhook, and advice; two empty texts if it is valid."""
    fault = placeholder_fault(body, NAMES)
    if fault[0]:
        return fault
    if _has_type(headers.items()):
        return "", ""
    try:
        json.loads("0".join(split_text(body)[::2]))  # a digit is valid JSON inside and outside a text
    except ValueError:
        return "the body is not JSON", "quote its texts, or give the hook its own Content-Type header"
    return "", ""


def _has_type(headers: Any) -> bool:
    return any(name.lower() == JSON_TYPE[0].lower() for name, _ in headers)


def values_of(fire: Fire) -> dict[str, Any]:
    """Return the values of the placeholders in a hook of this fire."""
    app, _, job = fire.job.partition(".")
    return {**json.loads(fire.payload), "app": app, "job": job}


def _json_text(value: Any, name: str) -> str:
    if value is None:
        return "null" if name in NUMBERS else ""
    return json.dumps(value)[1:-1] if type(value) is str else json.dumps(value)
