"""`detent schema`: prints the JSON Schema of manifests."""

import argparse

from detent.cli.tables import write_json
from detent.manifest.json_schema import schema

EXAMPLE = "detent schema --version 2 > detent.schema.json"


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "the manifest version (default: 2)"
    parser.add_argument("--version", type=int, choices=(1, 2), default=2, help=about)


def main(args: argparse.Namespace) -> int:
    write_json(schema(args.version))
    return 0
