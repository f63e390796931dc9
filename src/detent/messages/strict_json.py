"""JSON from outside, read without ambiguity.

Refused are duplicate names, NaN and infinity, numbers that are too large, and nesting that is too deep.
"""

from __future__ import annotations

import json
import math
from typing import Any

from detent.text import TOO_DEEP, is_too_deep


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("a number is too large")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def decode(text: str) -> Any:
    if is_too_deep(text):
        raise ValueError(TOO_DEEP)
    return _decoder.decode(text)
