"""What a dashboard shows: one store, with the manifests and the apps in code that are known."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from detent.app.app import Detent
from detent.events import Emit
from detent.manifest.check import Manifest
from detent.messages.masking import Mask
from detent.stores.base import Store
from detent.views.context import Context

_P = ParamSpec("_P")
_R = TypeVar("_R")
THREADS_MAX = 4  # a store that hangs must not take more threads of this process

_threads = ThreadPoolExecutor(THREADS_MAX, "detent-dashboard")


async def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run a blocking call, such as a call of the store, without blocking the loop."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **kwargs))


class Source(NamedTuple):
    store: Store
    url: str  # of the store; "": not known
    mask: Mask
    manifests: Mapping[str, Manifest] = {}  # by app; entries are replaced when a manifest changes
    apps: Mapping[str, Detent] = {}  # in code, by name
    reload: Callable[[], None] = lambda: None  # replaces manifests whose files have changed
    emit: Emit = lambda event, **fields: None
    hides_arguments: bool = False

    def context(self, app: str) -> Context:
        return Context(self.manifests.get(app), self.store, self.url)
