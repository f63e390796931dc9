"""The program `detent`, and `python -m detent`.

Everything else is imported inside `main`, so that Ctrl-C during the imports ends without a traceback.
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
