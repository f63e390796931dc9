"""A process that takes a lock and prints when it has it: `lock_holder.py STORE NAME DEED`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from detent import Detent

STORE, NAME, DEED, *WORDS = sys.argv[1:]
app = Detent("locky", store=STORE)


if DEED == "hold":
    with app.lock(NAME, ttl_seconds=float(WORDS[0])) as held:
        sys.stdout.write(f"{held.fence}\n")
        sys.stdout.flush()
        sys.stdin.read()
else:
    for _ in range(int(WORDS[1])):
        with app.lock(NAME, ttl_seconds=10):
            before = int(Path(WORDS[0]).read_text())
            threading.Event().wait(0.002)
            Path(WORDS[0]).write_text(str(before + 1))
