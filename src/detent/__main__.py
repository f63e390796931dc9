"""The program `detent`, and `python -m detent`.

This module is tiny: Ctrl-C during the import of anything else ends the program without a traceback.
"""

import sys

INTERRUPTED = 130  # 128 + SIGINT


def main() -> int:
    try:
        from detent.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
