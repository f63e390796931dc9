"""The warden as a program: `python -I -S main.py SOCKET_FD LOCK_FD CGROUP`.

It owns a node's processes, so that they end in time whatever becomes of the node.  It imports
nothing but the standard library and `program`, which stands beside it and imports no more: it must
start fast, stay small, and not fall with the rest of the package.
"""

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    importlib.import_module("program.reaper").start_reaper(os.environ["DETENT_NODE"])
    sys.exit(importlib.import_module("program.loop").main(sys.argv[1:]))
