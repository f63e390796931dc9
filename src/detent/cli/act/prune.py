"""`detent prune`: deletes old history now, as nodes do every ten minutes.

Fires that are not over are never deleted.
"""

import argparse
from datetime import timedelta

from detent.cli.context import add_store_options, open_context
from detent.cli.options import keep, seconds
from detent.cli.tables import write_json
from detent.manifest.check import NodeSettings
from detent.text import plural
from detent.views.context import require_store
from detent.views.formatting import duration
from detent.views.lookup import apps_of

EXAMPLE = "detent prune --older-than 90d"


def add_options(parser: argparse.ArgumentParser) -> None:
    age = "delete fires that ended longer ago, such as 90d (default: the manifest's node.keep_days)"
    most = "keep the newest N fires of each job (default: the manifest's node.keep_fires)"
    parser.add_argument("--older-than", type=seconds, dest="older_than_s", metavar="TIME", help=age)
    parser.add_argument("--keep", type=keep, metavar="N", help=most)
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    store = require_store(context)
    settings = context.manifest.node if context.manifest else NodeSettings()
    older_than_s = args.older_than_s or timedelta(days=settings.keep_days).total_seconds()
    most = args.keep or settings.keep_fires
    gone = {app: store.prune(app, older_than_s, most) for app in apps_of(context)}
    if args.output == "json":
        write_json([{"app": app, "forgotten": count} for app, count in gone.items()])
        return 0
    for app, count in gone.items():
        which = f"ended more than {duration(older_than_s)} ago, or not among the newest {most:,} of their job"
        print(f"{app}: {plural(count, 'fire')} deleted: {which}")
    return 0
