"""`detent help`: lists the verbs by group, or describes one verb."""

import argparse

from detent.cli.main import VERBS, build_parser, overview
from detent.errors import UsageError
from detent.text import did_you_mean, quote

EXAMPLE = "detent help run"


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "the verb to describe (default: list all verbs)"
    parser.add_argument("verb", nargs="?", metavar="VERB", help=about)


def main(args: argparse.Namespace) -> int:
    if args.verb is None:
        print(overview())
    elif args.verb in VERBS:
        print(build_parser(args.verb).format_help(), end="")
    else:
        raise UsageError(f"there is no verb {quote(args.verb)}{did_you_mean(args.verb, VERBS)}")
    return 0
