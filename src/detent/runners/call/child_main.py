"""A warm child as a program: `python -P child_main.py`, with the socket as descriptor 0.

It imports the node's own package, whatever else of that name is installed.  Neither its folder nor the
package's folder stays in the module path of the calls.
"""

import importlib
import sys

if __name__ == "__main__":
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    importlib.import_module("detent")
    del sys.path[0]
    sys.exit(importlib.import_module("detent.runners.call.child").main())
