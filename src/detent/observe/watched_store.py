"""Wraps a store for metrics and traces: how long its calls took, what they granted, what they ended."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from detent import clock
from detent.model import Ask, Grants, Report, Verdict
from detent.stores.base import Store

UNTIMED = ("close", "wait")  # `wait` lasts as long as it may
VERBS = frozenset(name for name in vars(Store) if not name.startswith("_")).difference(UNTIMED)


def _ignore(*_: object) -> None:
    """Does nothing."""


class Watch(NamedTuple):
    """Functions that are called after a call of the store."""

    called: Callable[[str, float, Exception | None], object] = _ignore  # verb, seconds, error
    granted: Callable[[Ask, Grants], object] = _ignore
    ended: Callable[[Sequence[Report], Sequence[Verdict | None]], object] = _ignore


def watched_store(store: Store, *watches: Watch) -> Store:
    return cast("Store", _WatchedStore(store, watches)) if watches else store


class _WatchedStore:
    def __init__(self, store: Store, watches: Sequence[Watch]) -> None:
        self._store, self._watches = store, watches

    def claim(self, ask: Ask) -> Grants:
        grants: Grants = self._call("claim", ask)
        self._granted(ask, grants)
        return grants

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        verdicts: list[Verdict | None] = self._call("finish", reports)
        self._ended(reports, verdicts)
        return verdicts

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        verdicts, grants = self._call("finish_and_claim", reports, ask)
        self._ended(reports, verdicts)
        self._granted(ask, grants)
        return verdicts, grants

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in VERBS:
            return found
        timed = self.__dict__[name] = partial(self._call, name)
        return timed

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        began, failed = clock.monotonic(), None
        try:
            return getattr(self._store, verb)(*args, **named)
        except Exception as error:
            failed = error
            raise
        finally:
            took_s = clock.monotonic() - began
            for watch in self._watches:
                watch.called(verb, took_s, failed)

    def _granted(self, ask: Ask, grants: Grants) -> None:
        for watch in self._watches:
            watch.granted(ask, grants)

    def _ended(self, reports: Sequence[Report], verdicts: Sequence[Verdict | None]) -> None:
        for watch in self._watches:
            watch.ended(reports, verdicts)
