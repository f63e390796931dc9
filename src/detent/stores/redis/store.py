"""The Redis store: a Redis or Valkey server, 6.2 or newer, that nodes on many hosts share.

The server's clock is the store's clock.  `lua/steps.lua` follows a step of it, and `lua/header.lua` describes
when a new epoch begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from detent import clock
from detent.errors import UsageError
from detent.model import Ask, Fire, Grants
from detent.rules.decide import is_plain
from detent.stores.base import app_of
from detent.stores.engine.claiming import PAGE_MAX
from detent.stores.engine.driver import Asked, Expect
from detent.stores.engine.engine import Engine
from detent.stores.engine.unit import Unit
from detent.stores.redis.driver import RedisDriver
from detent.stores.redis.link import Link, Servers
from detent.stores.redis.session import Session

TAKE_AGAIN_S = 1.0  # after a refusal


class RedisStore(Engine):
    def __init__(
        self,
        url: str,
        key_prefix: str = "",
        wait_replicas: int = 0,
        wall: Callable[[], float] | None = None,
        elapsed: Callable[[], float] = clock.boottime,
        *,
        servers: Servers | None = None,
    ) -> None:
        """`wall` replaces the server's clock in tests; `servers` replaces redis-py."""
        if "{}" in key_prefix:
            raise UsageError('bad key_prefix: "{}" would scatter the keys over a cluster; leave it out')
        if servers is None:
            from detent.stores.redis.servers import RedisServers

            servers = RedisServers(url)
        link = Link(servers, wait_replicas)
        self._session = Session(link, key_prefix, wait_replicas > 0, wall, elapsed)
        super().__init__(RedisDriver(self._session))
        # App and queues -> when `take` may answer an ask: after an ask that got only plain messages.
        self._take_from: dict[tuple[str, ...], float] = {}

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        starts = {job: f"{app_of(job)}." for job in {fire.job for fire in fires}}
        for fire in fires:
            if not fire.key.startswith(starts[fire.job]):
                raise UsageError(f"the key {fire.key} must begin with its app, as its job {fire.job} does")
        return super().put(fires, delay_s)

    def claim(self, ask: Ask) -> Grants:
        if ask.dead:  # an instance may have claims of other apps
            for app in set(self.apps()) - {ask.app}:
                self._run(app, lambda unit: _end_claims(unit, ask.dead))
        queues, is_usual = (ask.app, *ask.queues), not (ask.dead or ask.without) and ask.limit <= PAGE_MAX
        if is_usual and self._take_from.get(queues, math.inf) <= clock.monotonic():
            from detent.stores.redis.taking import take  # the trigger does not need it

            if taken := take(self._session, ask):
                self._remember(taken[1], taken[0].epoch)
                return taken[0]
            self._take_from[queues] = clock.monotonic() + TAKE_AGAIN_S
        grants = super().claim(ask)
        if not all(is_plain(claim.fire) for claim in grants.claims):
            self._take_from.pop(queues, None)
        elif grants.claims:
            self._take_from.setdefault(queues, 0.0)
        return grants


def _end_claims(unit: Unit, dead: Sequence[str]) -> None:
    """Expire the claims of dead nodes."""
    pages = unit.look(*(Asked(node) for node in dead))
    for record in (one for page in pages for one in page if one.is_live(unit.steady)):
        record.expires = unit.steady
        unit.write(record)
    unit.commit(Expect(wakes_nodes=True) if unit.writes else None)
