"""The warden as a program: `python -I -S main.py SOCKET_FD LOCK_FD CGROUP`.

It owns a node's processes, so that they end in time whatever happens to the node.  It imports only the
standard library and `program`, which does the same: it must start fast, stay small, and not fail with the
rest of the package.
"""

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    importlib.import_module("program.reaper").start_reaper(os.environ["DETENT_NODE"])
    sys.exit(importlib.import_module("program.loop").main(sys.argv[1:]))
