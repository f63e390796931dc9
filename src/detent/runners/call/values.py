"""Encodes and decodes values whose types msgspec does not know: paths and pydantic models."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any


def encoded(value: object) -> Any:
    """Return the value as JSON can hold it; raises TypeError for other types."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(type(value), "model_validate"):
        dumped = value.model_dump(mode="json", by_alias=True, round_trip=True)  # type: ignore[attr-defined]
        if type(value).model_validate(dumped) != value:  # type: ignore[attr-defined]
            raise ValueError(f"{type(value).__name__} is not the same after model_dump and model_validate")
        return dumped
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def decoded(kind: Any, value: Any) -> Any:
    """Return the value as a `kind`; raises ValueError if it is not one."""
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"{kind} is not a type that a message can carry")
