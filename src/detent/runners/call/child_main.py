"""A warm child as a program: `python -P child_main.py PROTOCOL`, with the socket as descriptor 0.

It imports the node's own package, whatever else of that name is installed.  Neither its folder nor the
package's folder stays in the module path of the calls.

The package on disk may be newer than the node that runs.  If they speak different protocols, the child exits
with `OUTDATED`, before it reads anything.  This argument and this status are the same in all versions.
"""

import importlib
import sys

PROTOCOL = "1"  # raise it with every change of what a child reads or writes
OUTDATED = 79  # as in the warden's `warm_children`

if __name__ == "__main__":
    if sys.argv[1:] != [PROTOCOL]:
        sys.exit(OUTDATED)
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    importlib.import_module("detent")
    del sys.path[0]
    sys.exit(importlib.import_module("detent.runners.call.child").main())
