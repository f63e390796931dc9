"""The jobs of a receiver, each with its function, and their version 1 manifest.

The manifest checker checks each job where it is declared, so the served manifest is always valid.  It has
references to secrets, never a secret.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.check import canonical_text, check_manifest
from detent.manifest.problems import ManifestError
from detent.receive.fire import ReceivedFire
from detent.text import quote

Function = Callable[..., Any]


class DeclaredJob(NamedTuple):
    name: str
    method: str
    document: dict[str, Any]  # as in the manifest
    function: Function
    wants_fire: bool
    is_async: bool

    def call(self, fire: ReceivedFire) -> Any:
        try:
            return self.function(fire) if self.wants_fire else self.function()
        except StopIteration as error:  # a future cannot hold it
            raise RuntimeError("the job raised StopIteration") from error


class Endpoint(NamedTuple):
    """Where a receiver's jobs are called, and with which secrets."""

    app: str
    url: str  # of the app, without a trailing slash
    prefix: str
    secret_refs: tuple[str, ...]


ARGUMENTS = {  # a path in the manifest -> the argument of Receiver that it comes from
    "app": "app",
    "jobs/0/request/url": "base_url",
    "jobs/0/auth": "secret_refs",
}


def check_endpoint(endpoint: Endpoint) -> None:
    """Raise `UsageError` if no valid manifest can result from it."""
    if not endpoint.secret_refs:
        raise UsageError(
            "bad secrets: the manifest must say where the scheduler finds its secrets, and raw: references "
            'are never published; add secret_refs, like secret_refs=["env:CRON_SECRET"]'
        )
    try:
        _manifest(endpoint, [{"name": "any", "schedule": "@daily"}])
    except ManifestError as error:
        raise UsageError("; ".join(_messages(error))) from None


def declare(endpoint: Endpoint, document: dict[str, Any], function: Function) -> DeclaredJob:
    """Check the job and its function; a `UsageError` lists every problem."""
    name = str(document["name"])
    where = f"bad job {quote(name)}"
    wants_fire = _wants_fire(function, where)
    try:
        _manifest(endpoint, [document])
    except ManifestError as error:
        raise UsageError(f"{where}: {'; '.join(_messages(error))}") from None
    return DeclaredJob(
        name=name,
        method=document["request"]["method"],
        document=document,
        function=function,
        wants_fire=wants_fire,
        is_async=_is_async(function),
    )


def manifest_of(endpoint: Endpoint, jobs: Sequence[DeclaredJob]) -> bytes:
    """The manifest in its canonical form, as it is served."""
    return canonical_text(_manifest(endpoint, [job.document for job in jobs])).encode()


def _manifest(endpoint: Endpoint, jobs: Sequence[dict[str, Any]]) -> Any:
    auth = {"secret_refs": list(endpoint.secret_refs)}
    urls = (f"{endpoint.url}{endpoint.prefix}/{job['name']}" for job in jobs)
    whole = [
        {**job, "request": {"url": url, **job.get("request", {})}, "auth": auth}
        for job, url in zip(jobs, urls, strict=True)
    ]
    return check_manifest({"version": 1, "app": endpoint.app, "jobs": whole})


def _messages(error: ManifestError) -> list[str]:
    messages = []
    for path, text in ((problem.path, problem.text) for problem in error.problems):
        known = next((name for start, name in ARGUMENTS.items() if path.startswith(start)), "")
        messages.append(f"{known or path.removeprefix('jobs/0/')}: {text}")
    return messages


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
