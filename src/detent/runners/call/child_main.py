"""A warm child as a program: `python -P child_main.py`, with the wire as descriptor 0.

It is started by its path, and its folder is not searched.  The package is the node's own, whatever else
of that name is installed; its place stays out of what the calls' own imports search.
"""

import importlib
import sys

if __name__ == "__main__":
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    importlib.import_module("detent")
    del sys.path[0]
    sys.exit(importlib.import_module("detent.runners.call.child").main())
