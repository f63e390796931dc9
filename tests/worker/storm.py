"""A storm: many messages through a few workers, one of which is killed with -9 now and then.

    make storm STORM='redis --messages 100000 --every 2'

Judged by the store's rows and by a witness that is not ours: a file to which each task appends its start and
its end.  1. Every message is over: done, or dead.  2. Each attempt was begun at most once, and there are no
more of them than its retries allow.  3. Nothing is begun again once it is done.  4. What is done was
witnessed to its end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.equipment.fleet import NodeProcess, wait_for
from tests.equipment.mysql_server import shared_mysql
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer
from tests.worker.worker_world import Seen, Works

from detent.app.queue.handles import Handle
from detent.model import Row

RUNS_MAX = 6  # of `stormy`: its retries, and one more
PUSH = 5000
PATIENCE_S = 1800.0


class Plan(NamedTuple):
    messages: int = 100_000
    every_s: float = 2.0  # between two kills
    kills: int = 0  # at least so many
    workers: int = 4
    seed: int = 1


class Storm:
    def __init__(self, works: Works, plan: Plan) -> None:
        self._works, self._plan, self._rng = works, plan, random.Random(plan.seed)
        self._fleet: list[NodeProcess] = []
        self.kills, self.took_s = 0, 0.0

    def run(self) -> list[str]:
        """What was wrong."""
        keys, count = list[str](), self._plan.messages // max(1, self._plan.kills)
        for number in range(max(1, self._plan.kills)):
            keys += [one.key for one in self._push(number, count)]
            while len(self._fleet) < self._plan.workers:
                self._fleet.append(self._launch())
            if self._plan.kills:
                self._wait_begun(len(keys) - count // 2)
                self._kill_one()
        began = time.monotonic()
        kill_at = began + self._plan.every_s
        while self._is_going_on():
            assert time.monotonic() < began + PATIENCE_S, "it did not come to an end"
            time.sleep(max(0.0, min(0.2, kill_at - time.monotonic())))
            if time.monotonic() >= kill_at:
                self._kill_one()
                kill_at += self._plan.every_s
        self.took_s = time.monotonic() - began
        for worker in self._fleet:
            worker.end()
        return judge(keys, self._works.rows(), self._works.seen("start"), self._works.seen("end"))

    def _is_going_on(self) -> bool:
        """A message that was returned between the two queries of `open_rows` is in neither."""
        works = self._works
        return bool(works.open_rows()) or any(row.state != "over" for row in works.rows())

    def _push(self, number: int, count: int) -> list[Handle[Any]]:
        pushed = []
        for first in range(number * count, (number + 1) * count, PUSH):
            numbers = range(first, min(first + PUSH, (number + 1) * count))
            pushed += self._works.tasks.stormy.push_many([(one,) for one in numbers])
        return pushed

    def _wait_begun(self, count: int) -> None:
        wait_for(lambda: len({one.key for one in self._works.seen("start")}) >= count, 120, "progress")

    def _launch(self) -> NodeProcess:
        return self._works.launch("storm", "--concurrency", "2", "--processes", "1")

    def _kill_one(self) -> None:
        worker = self._fleet.pop(self._rng.randrange(len(self._fleet)))
        worker.kill()
        self.kills += 1
        self._fleet.append(self._launch())


def judge(
    keys: Sequence[str], rows: Iterable[Row], starts: Iterable[Seen], ends: Iterable[Seen]
) -> list[str]:
    by_key = {row.fire.key: row for row in rows}
    begun: dict[str, list[int]] = defaultdict(list)
    for one in starts:
        begun[one.key].append(one.attempt)
    done = {one.key for one in ends}
    return [wrong for key in keys for wrong in _judge_one(key, by_key.get(key), begun[key], key in done)]


def _judge_one(key: str, row: Row | None, begun: list[int], is_done: bool) -> Iterable[str]:
    if row is None:
        yield f"{key} is lost"
        return
    if row.state != "over" or row.outcome is None:
        yield f"{key} is {row.state}"
        return
    kinds = Counter(one.outcome.kind for one in row.attempts)
    if row.outcome.kind not in ("succeeded", "failed", "lost"):
        yield f"{key} ended {row.outcome.kind}: {row.outcome.reason}"
    if row.outcome.kind != "succeeded" and row.attempt < RUNS_MAX:
        yield f"{key} is dead after {row.attempt} attempts"
    if kinds["succeeded"] != (row.outcome.kind == "succeeded"):
        yield f"{key} was acked {kinds['succeeded']} times, and ended {row.outcome.kind}"
    if row.attempt > RUNS_MAX or len(row.attempts) > RUNS_MAX:
        yield f"{key} has {row.attempt} attempts"
    if len(begun) != len(set(begun)):
        yield f"{key} began an attempt twice: {begun}"
    if max(begun, default=0) > row.attempt:
        yield f"{key} began again after its end: {begun}, {row.attempt}"
    if row.outcome.kind == "succeeded" and not (is_done and row.attempt in begun):
        yield f"{key} is done, but no call was recorded"


URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/storm.db",
    "redis": lambda folder: RedisServer(folder / "redis").url,
    "postgres": lambda folder: shared_server().url,
    "mysql": lambda folder: shared_mysql().url(shared_mysql().new_database()),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="many messages, and workers that are killed")
    parser.add_argument("store", nargs="?", default="redis", choices=URLS)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="detent-storm-") as folder:
        works = Works(Path(folder), URLS[given.store](Path(folder)), f"storm-{given.seed}")
        storm = Storm(works, Plan(given.messages, given.every, seed=given.seed))
        try:
            wrong = storm.run()
        finally:
            works.clear_up()
        rows = Counter((row.outcome.kind, row.attempt) for row in works.rows() if row.outcome)
        summary = f"{given.messages} messages, {storm.kills} kills, {storm.took_s:.0f} s"
        print(f"{summary}: {dict(sorted(rows.items()))}")
        works.assert_quiet()
    print(*wrong[:50], f"{len(wrong)} wrong", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
