"""Drives one peer from a process of its environment: `python -m queue_peers.driver PEER VERB …` prints JSON.

A peer is a module with `PACKAGE`, `LINES` (what starts its two worker processes), `SETTINGS`, `LOSES` (what
its default loses on kill -9), `open()`, `push()` and, where it has a batch, `push_many(n)`: plain functions
or coroutines.  `prepare()`, where there is one, makes what must be there before the first worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.metadata import version
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any

from noted import VARIABLE, read_notes

LOOK_S, PATIENCE_S = 0.001, 30.0
REST_S = (0.010, 0.050)  # between two pushes, at random, so that they do not follow the rhythm of polling


async def facts(peer: ModuleType) -> dict[str, Any]:
    return {
        "version": version(peer.PACKAGE),
        "lines": peer.LINES,
        "settings": peer.SETTINGS,
        "loses": peer.LOSES,
        "has_batch": hasattr(peer, "push_many"),
        "prepares": hasattr(peer, "prepare"),
    }


async def prepare(peer: ModuleType) -> dict[str, Any]:
    await _result(peer.prepare)
    return {}


async def push(peer: ModuleType, n: int) -> dict[str, Any]:
    """Push this many tasks one by one."""
    await _result(peer.open)
    one = peer.push
    began = time.perf_counter()
    if iscoroutinefunction(one):
        for _ in range(n):
            await one()
    else:
        for _ in range(n):
            one()
    return {"took_s": time.perf_counter() - began}


async def push_many(peer: ModuleType, n: int) -> dict[str, Any]:
    await _result(peer.open)
    began = time.perf_counter()
    await _result(peer.push_many, n)
    return {"took_s": time.perf_counter() - began}


async def latency(peer: ModuleType, n: int) -> dict[str, Any]:
    """Measure from just before a push until the task starts, on idle workers."""
    await _result(peer.open)
    notes = Path(os.environ[VARIABLE])
    base, late_s = len(read_notes(notes)), []
    for i in range(n + 1):
        await asyncio.sleep(random.uniform(*REST_S))
        pushed_at = time.time()
        await _result(peer.push)
        give_up_at = pushed_at + PATIENCE_S
        while notes.stat().st_size // 8 <= base + i:
            if time.time() > give_up_at:
                raise SystemExit(f"a task did not start within {PATIENCE_S:g} s")
            await asyncio.sleep(LOOK_S)
        late_s.append(read_notes(notes)[-1] - pushed_at)
    return {"late_s": late_s[1:]}  # the first push opens the connection


async def _result(function: Callable[..., Any], *given: Any) -> None:
    answer = function(*given)
    if isinstance(answer, Coroutine):
        await answer


VERBS = {verb.__name__: verb for verb in (facts, prepare, push, push_many, latency)}

if __name__ == "__main__":
    name, verb, *given = sys.argv[1:]
    peer = import_module(f"queue_peers.{name}")
    print(json.dumps(asyncio.run(VERBS[verb](peer, *map(int, given)))))
