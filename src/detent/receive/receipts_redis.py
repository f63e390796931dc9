"""Receipts in Redis or Valkey: each is a key that expires, and every call one script (`receipts_redis.lua`).

The keys of an app lie in one slot of a cluster, below `{detent:<app>}:receive:`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from detent.errors import StoreMismatch
from detent.receive.receipts import Arrival, Standing, Terms
from detent.stores.redis_health import refusal
from detent.stores.redis_link import Link
from detent.stores.redis_script import Script


class RedisReceipts:
    def __init__(self, url: str) -> None:
        self._link, self._is_met = Link(url, 0), False

    def begin(self, arrival: Arrival, terms: Terms) -> Standing:
        if not self._is_met:
            self._meet(arrival)
        given = (str(arrival.fence), "1" if terms.is_fenced else "", _milliseconds(terms.lease_s))
        kind, value = self._run("begin", arrival, *given)
        match kind:
            case b"handled":
                return Standing("handled", answer=value.decode())
            case b"stale":
                return Standing("stale", newest=int(value))
            case b"running":
                return Standing("running", left_s=int(value) / 1000)
        return Standing("ours")

    def renew(self, arrivals: Sequence[Arrival], terms: Terms) -> None:
        for one in arrivals:
            self._run("renew", one, _milliseconds(terms.lease_s))

    def finish(self, arrival: Arrival, answer: str, terms: Terms) -> None:
        self._run("finish", arrival, answer, _milliseconds(terms.keep_s))

    def release(self, arrival: Arrival) -> None:
        self._run("release", arrival)

    def close(self) -> None:
        self._link.close()

    def _meet(self, arrival: Arrival) -> None:
        """One that throws keys away when it is full would forget what was handled."""
        if why := refusal(self._link.call(_place(arrival), "INFO")):
            raise StoreMismatch(f"{self._link.where} {why}")
        self._is_met = True

    def _run(self, verb: str, arrival: Arrival, *given: str) -> list[bytes]:
        words = (verb, arrival.job, arrival.key, arrival.owner, *given)
        return self._link.run(_script(), _place(arrival), words, is_write=True)


def _place(arrival: Arrival) -> str:
    return f"{{detent:{arrival.app}}}:receive"


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


@cache
def _script() -> Script:
    text = (files("detent.receive") / "receipts_redis.lua").read_text(encoding="utf-8")
    return Script(f"local function answer()\n{text}\nend", is_kept=False)
