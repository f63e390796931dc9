"""Three crontabs on three hosts, with one job and one Redis, which fire some seconds apart.

`make crontabs` simulates 24 minutes with a clock that jumps from one trigger to the next, for the store and
the hosts alike.  With `--real` no clock jumps: the job is due every ten seconds, and triggers may overlap.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.equipment.redis_server import RedisServer
from tests.equipment.wall_clock import WallClock, build_skew
from tests.trigger.trigger_world import App, Asked, Host, TriggerEnd, TriggerProcess

OFFSETS_S = (0.0, 2.0, 5.0)  # when each crontab fires, after the instant
HANDLER_S = 0.05
DOWN_EVERY = 5  # the first crontab is down for every fifth instant
JOB = {"concurrency_scope": "global", "timeout_seconds": 60}


class Found(NamedTuple):
    """The result."""

    instants: list[int]  # for which the job was due
    calls: Counter[int]  # of the app, by instant
    said: list[TriggerEnd]

    def faults(self) -> list[str]:
        problems = [f"{at}: {self.calls[at]} calls" for at in self.instants if self.calls[at] != 1]
        problems += [
            f"{at}: called {n} times" for at, n in self.calls.items() if n > 1 or at < self.instants[0]
        ]
        names = Counter(one.names[-1] for one in self.said)
        if names["success"] != len(self.calls):  # a slow trigger may be for the instant after the last one
            problems.append(f"{len(self.calls)} instants were called for: {dict(names)}")
        return problems + [str(one) for one in self.said if one.code not in (0, 4)]


def jump(folder: Path, clock: WallClock, instants: int) -> Found:
    """Minutes by a clock that jumps.  Each trigger ends before the next one starts."""
    server = RedisServer(folder / "redis", env=clock.env)

    def go_to(at: float) -> None:
        clock.set(max(at - time.time(), clock.ahead_s))  # never back, however slow this machine is

    first = int(time.time()) // 60 * 60 + 120
    try:
        return _trigger_all(
            folder, server.url, "* * * * *", range(first, first + 60 * instants, 60), go_to, clock
        )
    finally:
        server.end()


def wait(folder: Path, clock: WallClock, instants: int) -> Found:
    """Every ten seconds, by the real clock."""
    server = RedisServer(folder / "redis")

    def go_to(at: float) -> None:
        threading.Event().wait(max(0.0, at - time.time()))

    first = int(time.time()) // 10 * 10 + 10
    try:
        return _trigger_all(
            folder, server.url, "*/10 * * * * *", range(first, first + 10 * instants, 10), go_to, None
        )
    finally:
        server.end()


def _trigger_all(
    folder: Path,
    url: str,
    schedule: str,
    instants: Sequence[int],
    go_to: Callable[[float], None],
    clock: WallClock | None,
) -> Found:
    hosts = [Host(folder / name, url) for name in ("a", "b", "c")]
    triggers: list[TriggerProcess] = []

    def answer(_: Asked) -> tuple[int, bytes]:
        time.sleep(HANDLER_S)
        return 200, b""

    with App(answer) as app, _cleared(hosts):
        for host in hosts:
            host.write("three", schedules=[schedule], request={"url": app.url}, policy=JOB)
        for place, instant in enumerate(instants):
            for turn, offset_s in enumerate(OFFSETS_S):
                if turn == 0 and place % DOWN_EVERY == DOWN_EVERY - 1:
                    continue
                go_to(instant + offset_s)
                triggers.append(hosts[(place + turn) % 3].start("three", **(clock.env if clock else {})))
                if clock:
                    triggers[-1].over()
        said = [process.over() for process in triggers]
    calls = Counter(int(asked.headers["x-cron-fire-time"]) for asked in app.requests)
    return Found(list(instants), calls, said)


@contextmanager
def _cleared(hosts: Sequence[Host]):  # type: ignore[no-untyped-def]
    try:
        yield
    finally:
        for host in hosts:
            host.clear_up()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instants", type=int, default=24)
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="detent-crontabs-") as directory:
        folder = Path(directory)
        clock = WallClock(build_skew(folder), folder / "skew")
        found = (wait if given.real else jump)(folder, clock, given.instants)
    for fault in found.faults():
        print(fault)
    ends = Counter(one.names[-1] for one in found.said)
    print(f"{len(found.instants)} instants, {len(found.said)} triggers, {found.calls.total()} calls")
    print(dict(ends))
    return 1 if found.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
