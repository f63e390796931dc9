"""The jobs that a receiver declares, each with its function, and the version 1 manifest of them.

- A job is checked where it is declared, by the checker of manifests: what is served is always sound.
- What is served names references to secrets, never a secret.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.check import ManifestError, canonical_text, check_manifest
from detent.receive.fire import ReceivedFire
from detent.text import quote

Function = Callable[..., Any]


class DeclaredJob(NamedTuple):
    """A job, and what is called for it."""

    name: str
    method: str
    document: dict[str, Any]  # as it stands in the manifest
    function: Function
    wants_fire: bool
    is_async: bool

    def call(self, fire: ReceivedFire) -> Any:
        try:
            return self.function(fire) if self.wants_fire else self.function()
        except StopIteration as error:  # it would be taken for the end of whatever waits for this
            raise RuntimeError("the job raised StopIteration") from error


class Endpoint(NamedTuple):
    """Where a receiver's jobs are called, and by which secrets."""

    app: str
    url: str  # of the app, without a slash at its end
    prefix: str
    secret_refs: tuple[str, ...]

    def url_of(self, name: str) -> str:
        return f"{self.url}{self.prefix}/{name}"


PARTS = {  # a path in a manifest -> what it is called here
    "app": "app",
    "jobs/0/request/url": "base_url",
    "jobs/0/auth": "secret_refs",
}


def check_endpoint(endpoint: Endpoint) -> None:
    """A `UsageError` where no manifest could come of it."""
    if not endpoint.secret_refs:
        raise UsageError(
            "bad secrets: the manifest tells the scheduler where its secrets are, and raw: is not for "
            'telling; say where it finds them, like secret_refs=["env:CRON_SECRET"]'
        )
    try:
        _check(endpoint, {"name": "any", "schedule": "@daily"})
    except ManifestError as error:
        raise UsageError("; ".join(_worded(error, PARTS))) from None


def declare(endpoint: Endpoint, document: dict[str, Any], function: Function) -> DeclaredJob:
    """The job, checked; a `UsageError` tells everything that is wrong with it."""
    name = str(document["name"])
    where = f"bad job {quote(name)}"
    wants_fire = _wants_fire(function, where)
    try:
        _check(endpoint, document)
    except ManifestError as error:
        raise UsageError(f"{where}: {'; '.join(_worded(error, {}))}") from None
    return DeclaredJob(
        name=name,
        method=document["request"]["method"],
        document=document,
        function=function,
        wants_fire=wants_fire,
        is_async=_is_async(function),
    )


def manifest_of(endpoint: Endpoint, jobs: Sequence[DeclaredJob]) -> bytes:
    """The manifest as it is served: in its canonical form."""
    document = {"version": 1, "app": endpoint.app, "jobs": [_whole(endpoint, job.document) for job in jobs]}
    return canonical_text(check_manifest(document)).encode()


def _check(endpoint: Endpoint, document: dict[str, Any]) -> None:
    check_manifest({"version": 1, "app": endpoint.app, "jobs": [_whole(endpoint, document)]})


def _whole(endpoint: Endpoint, document: dict[str, Any]) -> dict[str, Any]:
    """A job with what all of them share."""
    request = {"url": endpoint.url_of(document["name"]), **document.get("request", {})}
    return {**document, "request": request, "auth": {"secret_refs": list(endpoint.secret_refs)}}


def _worded(error: ManifestError, names: dict[str, str]) -> list[str]:
    return [f"{_place_of(problem.path, names)}: {problem.message}" for problem in error.problems]


def _place_of(path: str, names: dict[str, str]) -> str:
    known = next((said for start, said in names.items() if path.startswith(start)), "")
    return known or path.removeprefix("jobs/0/")


def _wants_fire(function: Function, where: str) -> bool:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{where}: its function is a generator, which would never run; return instead of yield"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UsageError(f"{where}: {quote(repr(function))} is no function") from None
    ways = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.default is one.empty and one.kind in ways]
    named = [one for one in parameters if one.default is one.empty and one.kind is one.KEYWORD_ONLY]
    if len(needed) > 1 or named:
        raise UsageError(
            f"{where}: its function is called with the fire, or with nothing; give the rest defaults"
        )
    return bool(needed)


def _is_async(function: Function) -> bool:
    called = type(function).__call__ if not inspect.isroutine(function) else function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
