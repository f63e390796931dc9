"""`detent dashboard`: serves a web page that shows what runs, ran and will run, and lets operators act.

- Without `--auth` it listens on this machine only.
- All manifests have to use one store.  Without a manifest, it shows every app of the store.
- `module:app` is an app in code: only with it can dead messages be retried.
"""

import argparse
import os
from collections.abc import Sequence

from detent.app.daemon import style_of
from detent.cli.context import has_manifest, store_exists
from detent.dashboard import LISTEN
from detent.dashboard.source import Source
from detent.errors import UsageError
from detent.loading.config import explicit_store, find_manifest, store_url
from detent.loading.module_app import is_app, load_app
from detent.loading.sources import find_place, read_manifests
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest
from detent.text import listed, quote

EXAMPLE = "detent dashboard detent.yaml --auth token:env:DASHBOARD_TOKEN"


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "a file, a directory or module:app (default: ./detent.yaml, else every app of the store)"
    parser.add_argument("manifests", nargs="*", metavar="MANIFEST", help=about)
    parser.add_argument("--store", metavar="URL", help="the store's URL (default: the manifest's)")
    listen = f"where to listen (default: {LISTEN}); other addresses than this machine's need --auth"
    parser.add_argument("--listen", default=LISTEN, metavar="HOST:PORT", help=listen)
    for name, metavar, about in (
        ("--host", "NAME", "a name (with its port) under which browsers reach it; can be repeated"),
        ("--auth", "HOW", "token:env:NAME, token:file:/PATH, read-token:… or proxy:HEADER; can be repeated"),
        ("--trusted-proxy", "ADDRESS", "an address whose proxy header is believed; can be repeated"),
    ):
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=about)
    parser.add_argument("--read-only", action="store_true", help="users may read, but change nothing")
    parser.add_argument("--hide-arguments", action="store_true", help="do not show arguments of messages")


def main(args: argparse.Namespace) -> int:
    from detent.dashboard.server import Dashboard, Options

    options = Options(
        listen=args.listen,
        hosts=tuple(args.host),
        auth=tuple(args.auth),
        proxies=tuple(args.trusted_proxy),
        is_read_only=args.read_only,
    )
    source = open_source(args.manifests, args.store, args.output)
    source = source._replace(hides_arguments=args.hide_arguments)
    Dashboard(source, options, dict(os.environ)).serve()
    source.store.close()
    return 0


def open_source(places: Sequence[str], flag: str | None, output: str) -> Source:
    from detent.dashboard.opening import Reloading, source_of

    env = dict(os.environ)
    if url := explicit_store(flag, env):
        os.environ["DETENT_STORE"] = env["DETENT_STORE"] = url  # an app in code uses the same store
    places = places or ([str(find_manifest())] if has_manifest() else [])
    manifests = [one for place in places for one in read_manifests(find_place(place), env)]
    apps = [load_app(place) for place in places if is_app(place)]
    url = _store_of(manifests, flag, env)
    if not store_exists(url):
        raise UsageError(f"no store at {quote(without_password(url))} yet: `detent run` creates it")
    source = source_of(url, manifests, apps, style_of(output, env))
    return source._replace(reload=Reloading(places, source))


def _store_of(manifests: Sequence[Manifest], flag: str | None, env: dict[str, str]) -> str:
    """The one store of these manifests."""
    urls = {store_url(manifest, flag, env): manifest.app for manifest in manifests}
    if len(urls) > 1:
        raise UsageError(
            f"{listed(sorted(urls.values()), 'and')} have different stores: start a dashboard for each,"
            " or name one store with --store"
        )
    return next(iter(urls)) if urls else store_url(None, flag, env)
