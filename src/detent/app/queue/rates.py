"""Rates, and `throttle`: at most `most` calls in any window, of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.app.queue.arguments import caller
from detent.app.queue.options import checked
from detent.errors import DetentError
from detent.manifest.fields import DAY_S
from detent.manifest.shapes import Boolean, Field, Integer, Number, Record
from detent.model import Rate
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

MOST_MAX = 1_000_000
THROTTLE = "throttle:"  # cannot be the name of a queue
_RATE = Record((
    Field("most", Integer(1, MOST_MAX)),
    Field("per", Number(0.001, DAY_S)),
    Field("smooth", Boolean()),
    Field("by_key", Boolean()),
))  # fmt: skip


class RateLimited(DetentError):
    """The rate is used up; the next call is allowed in `free_in_s` seconds."""

    def __init__(self, name: str, rate: Rate, free_in_s: float) -> None:
        super().__init__(name, rate, free_in_s)
        self.name, self.rate, self.free_in_s = name, rate, free_in_s

    def __str__(self) -> str:
        most = f"{self.rate.most:,} in {self.rate.window_s:g} s"
        return f"{quote(self.name)} is limited to {most}: free in {self.free_in_s:.3g} s"


def rate_of(name: str, **said: Any) -> Rate:
    given = checked(_RATE, said, f"{caller()}the rate of {quote(name)}")
    return Rate(given["most"], given["per"], given["smooth"], given.get("by_key", False))


def throttle(app: Detent, name: str, rate: Rate) -> None:
    """Count one call, or raise `RateLimited`."""
    used = app.open_store().charge(app.name, THROTTLE + name, rate)
    if used.free_in_s > 0:
        raise RateLimited(name, rate, used.free_in_s)
