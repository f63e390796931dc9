"""Puts, claims and finishes fires in turn, and prints a line for each acknowledgement of the store.

`python -m tests.equipment.power_writer URL`.  It is a process of its own: when the power of its disk is cut,
SQLite's mapped pages may be gone under it.
"""

from __future__ import annotations

import sys
from itertools import count

from detent.errors import DetentError
from detent.model import Ask, Policy, Report
from detent.stores.base import Store
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import DONE, fire

BRIEF = Policy("Allow", claim_s=2.0)  # a restarted store grants nothing until the old claims are over


def write(store: Store) -> None:
    for number in count(1):
        key = f"a.job@{number}"
        assert store.put([fire(key, policy=BRIEF)]) == [True]
        _say("put", key, 0)
        for claim in store.claim(Ask("a", "node", number, 1)).claims:
            _say("claim", claim.fire.key, claim.fence)
            assert store.finish([Report(claim, DONE)]) == [DONE]
            _say("finish", claim.fire.key, claim.fence)


def _say(what: str, key: str, fence: int) -> None:
    print(what, key, fence, flush=True)


if __name__ == "__main__":
    try:
        write(open_store(sys.argv[1]))
    except DetentError as error:
        sys.exit(f"stopped: {error}")
