"""Opens what a dashboard shows: for `detent dashboard`, and beside the node of `detent run --dashboard`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from detent.app.app import Detent
from detent.app.daemon import DaemonOptions
from detent.dashboard.server import Dashboard, Options, parse_listen
from detent.dashboard.source import Source
from detent.errors import UsageError
from detent.loading.config import store_options, store_url
from detent.loading.module_app import is_app, load_app
from detent.loading.sources import find_place, is_url, read_manifests
from detent.manifest.check import Manifest
from detent.messages.masking import Mask
from detent.node.service import stamp_of
from detent.observe.logs import Style, log_to
from detent.observe.secrecy import password_of, secrets_of
from detent.stores.registry import open_store


class Reloading:
    """Reads the files of manifests again when they have changed."""

    def __init__(self, places: Sequence[str], source: Source) -> None:
        self._places = [place for place in places if not is_app(place) and not is_url(place)]
        self._files, self._source = tuple(map(Path, self._places)), source
        self._stamp = stamp_of(self._files)

    def __call__(self) -> None:
        stamp = stamp_of(self._files)
        if stamp == self._stamp:
            return
        self._stamp, env = stamp, dict(os.environ)
        try:
            found = [one for place in self._places for one in read_manifests(find_place(place), env)]
        except UsageError as error:
            self._source.emit("reload-refused", error=str(error))
            return
        replace_manifests(self._source, found)


def replace_manifests(source: Source, manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        source.mask.learn(secrets_of(manifest, dict(os.environ)))
        cast("dict[str, Manifest]", source.manifests)[manifest.app] = manifest


def source_of(url: str, manifests: Sequence[Manifest], apps: Sequence[Detent], style: Style) -> Source:
    env, mask = dict(os.environ), Mask(password_of(url))
    source = Source(
        store=open_store(url, **store_options(manifests[0] if manifests else None, env)),
        url=url,
        mask=mask,
        manifests={},
        apps={app.name: app for app in apps},
        emit=log_to(sys.stderr, style, mask),
    )
    replace_manifests(source, manifests)
    return source


class Beside:
    """A dashboard beside the node.  It starts when the manifest is first loaded, and follows its changes."""

    def __init__(self, options: DaemonOptions, listen: str, style: Style) -> None:
        self._options, self._listen, self._style = options, listen, style
        self._dashboard: Dashboard | None = None
        self._source: Source | None = None

    def load(self) -> Manifest:
        manifest = self._options.load()
        if self._source is None:
            self._start(manifest)
        else:
            replace_manifests(self._source, [manifest])
        return manifest

    def _start(self, manifest: Manifest) -> None:
        url = store_url(manifest, self._options.store, self._options.env)
        if url.startswith("memory:"):
            raise UsageError("--dashboard cannot read a store in the node's memory: use sqlite:///PATH")
        if not parse_listen(self._listen).is_loopback:
            raise UsageError(
                f"--dashboard {self._listen} would let everyone in: it serves this machine only;"
                " for others run `detent dashboard` with --auth"
            )
        apps = [load_app(self._options.name)] if is_app(self._options.name) else []
        self._source = source_of(url, [manifest], apps, self._style)
        self._dashboard = Dashboard(self._source, Options(listen=self._listen), self._options.env)
        self._dashboard.start()

    def stop(self) -> None:
        if self._dashboard and self._source:
            self._dashboard.stop()
            self._source.store.close()
