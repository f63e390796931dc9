"""Receipts in Redis or Valkey: each call runs one script (`redis.lua`).

All keys of an app start with `{detent:<app>}:receive:`, so they are in one slot of a cluster.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from detent.errors import StoreMismatch
from detent.receive.receipts.base import Arrival, BeginResult, ReceiptOptions
from detent.receive.receipts.clock import ClockMemory, Reading
from detent.stores.redis.health import refusal
from detent.stores.redis.link import Link, Script
from detent.stores.redis.servers import RedisServers


class RedisReceipts:
    def __init__(self, url: str) -> None:
        self._link, self._is_checked = Link(RedisServers(url)), False
        self._memories: defaultdict[str, ClockMemory] = defaultdict(ClockMemory)  # by the prefix of the keys

    def begin(self, arrival: Arrival, options: ReceiptOptions) -> BeginResult:
        if not self._is_checked:
            self._check_server(arrival)
        given = (arrival.fence, "1" if options.is_fenced else "", options.lease_s, options.keep_s)
        kind, value = self._run("begin", arrival, *map(str, given))
        match kind:
            case b"handled":
                return BeginResult("handled", answer=value.decode())
            case b"stale":
                return BeginResult("stale", newest=int(value))
            case b"running":
                return BeginResult("running", left_s=float(value))
        return BeginResult("ours")

    def renew(self, arrivals: Sequence[Arrival], options: ReceiptOptions) -> None:
        for one in arrivals:
            self._run("renew", one, str(options.lease_s))

    def finish(self, arrival: Arrival, answer: str, options: ReceiptOptions) -> None:
        self._run("finish", arrival, answer, str(options.keep_s))

    def release(self, arrival: Arrival) -> None:
        self._run("release", arrival)

    def close(self) -> None:
        self._link.servers.close()

    def _check_server(self, arrival: Arrival) -> None:
        """Refuse a server that evicts keys when it is full: it would forget which fires were handled."""
        if why := refusal(self._link.call(_prefix(arrival), "INFO")):
            raise StoreMismatch(f"{self._link.servers.where} {why}")
        self._is_checked = True

    def _run(self, verb: str, arrival: Arrival, *given: str) -> tuple[bytes, bytes]:
        prefix = _prefix(arrival)
        memory, asked_at = self._memories[prefix].recall()
        words = (verb, arrival.job, arrival.key, arrival.owner, *map(str, memory), *given)
        epoch, mono, kind, value = self._link.run(_script(), prefix, words, is_write=True)
        self._memories[prefix].learn(Reading(epoch.decode(), float(mono)), asked_at)
        return kind, value


def _prefix(arrival: Arrival) -> str:
    return f"{{detent:{arrival.app}}}:receive"


@cache
def _script() -> Script:
    return Script((files("detent.receive.receipts") / "redis.lua").read_text(encoding="utf-8"))
