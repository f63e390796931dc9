"""`detent help`: the verbs by group, or the options of one verb."""

from __future__ import annotations

import argparse

from detent.cli.main import VERBS, overview, parser_of
from detent.errors import UsageError
from detent.text import did_you_mean, quote

EXAMPLE = "detent help run"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "verb", nargs="?", metavar="VERB", help="the verb to describe (default: list all verbs)"
    )


def main(given: argparse.Namespace) -> int:
    if given.verb is None:
        print(overview())
    elif given.verb in VERBS:
        print(parser_of(given.verb).format_help(), end="")
    else:
        raise UsageError(f"there is no verb {quote(given.verb)}{did_you_mean(given.verb, VERBS)}")
    return 0
