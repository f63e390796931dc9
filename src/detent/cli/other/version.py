"""`detent version`."""

from __future__ import annotations

import argparse

from detent.cli.build import find_build

EXAMPLE = "detent version"


def add_options(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def main(args: argparse.Namespace) -> int:
    build = find_build()
    if args.output == "json":
        from detent.cli.tables import write_json

        write_json({"version": build.version, "commit": build.commit or None, "release": build.is_release})
    else:
        print(build)
    return 0
