"""JSON of strangers: read without a second meaning, written without what JSON does not have.

A name that is there twice is an error, and so is a number that is none, or too large for one, and a nesting
that is too deep.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from detent.text import TOO_DEEP, is_too_deep


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("a number is too large")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)


def decode_start(text: str) -> tuple[Any, int]:
    """The value that a text begins with, and where it ends; a `ValueError` if there is none."""
    if is_too_deep(text):
        raise ValueError(TOO_DEEP)
    return _decoder.raw_decode(text)


def decode(text: str) -> Any:
    """Most have nothing around their JSON, and need not be searched for where it begins and ends."""
    if is_too_deep(text):
        raise ValueError(TOO_DEEP)
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        value, end = _decoder.raw_decode(text)
        if end == len(text):
            return value
    return _decoder.decode(text)


_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _encoder() -> Callable[[Any], str]:
    """For what was read from JSON; made once, as `JSONEncoder.encode` makes it anew for every text."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter that has it otherwise
        return _written.encode
    pieces = make(None, _written.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))


encode = _encoder()
