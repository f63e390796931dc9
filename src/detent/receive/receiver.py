"""Declares the jobs of an app that receives fires over HTTP, and answers its requests.

- The signature is checked first: a caller without a secret cannot learn which jobs exist.
- Every error has a name.  No answer and no log contains a secret.
- A job's function is not interrupted when its caller disconnects: its outcome is still recorded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from detent.errors import SignatureError, UsageError
from detent.manifest.fields import LIMITS
from detent.messages.signing import TOLERANCE_MAX_S, TOLERANCE_MIN_S, signature_id
from detent.receive.dedupe import Dedupe, run
from detent.receive.exchange import Perform, RunAsync, on_loop, on_thread, run_alone, run_blocking
from detent.receive.fire import ReceivedFire, identity_of, read_fire
from detent.receive.jobs import DeclaredJob, Endpoint, check_endpoint, declare, manifest_of
from detent.receive.messages import JSON, Incoming, Refusal, Reply, refuse
from detent.receive.receipts.base import ReceiptOptions, open_receipts
from detent.receive.verifier import Verifier
from detent.text import did_you_mean, quote

if TYPE_CHECKING:
    from detent.receive.asgi import AsgiApp
    from detent.receive.wsgi import WsgiApp

MANIFEST_PATH = "/.well-known/cron-manifest"
BODY_MAX = 1_048_576  # bytes by default: as large as a manifest's body may be
LEASE_S = 15.0
LEASE_MIN_S, LEASE_MAX_S = 3.0, 3600.0  # a step of a server's clock below 1 s goes unnoticed
KEEP_DAYS = 30
DAY_S = 86_400.0
JOBS_MAX = LIMITS[1].jobs

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_F = TypeVar("_F", bound=Callable[..., Any])

log = logging.getLogger("detent.receive")


class Receiver:
    """Declare jobs with `job`; mount it with `asgi`, `wsgi`, `blueprint` or `urlpatterns`."""

    def __init__(
        self,
        app: str,
        *,
        base_url: str,
        secrets: str | Sequence[str],
        secret_refs: Sequence[str] = (),
        prefix: str = "/cron",
        window_seconds: float = TOLERANCE_MAX_S,
        body_max: int = BODY_MAX,
        require_signed_manifest: bool = False,
        dedupe: str = "",
        lease_seconds: float = LEASE_S,
        keep_days: float = KEEP_DAYS,
        reject_stale_fence: bool = False,
        accept_v1: bool = False,
    ) -> None:
        self._refs = (secrets,) if isinstance(secrets, str) else tuple(secrets)
        published = tuple(secret_refs) or tuple(ref for ref in self._refs if not ref.startswith("raw:"))
        self._endpoint = Endpoint(app, base_url.rstrip("/"), prefix, published)
        self.prefix = prefix  # of the paths of the jobs
        self._window_s, self.body_max = window_seconds, body_max
        self._is_manifest_signed, self._accepts_v1 = require_signed_manifest, accept_v1
        self._options = ReceiptOptions(lease_seconds, keep_days * DAY_S, reject_stale_fence)
        self._check(dedupe)
        check_endpoint(self._endpoint)
        self._verifier = Verifier(self._endpoint.url, self._refs, window_seconds)
        self._dedupe = Dedupe(open_receipts(dedupe), self._options) if dedupe else None
        self._jobs: dict[str, DeclaredJob] = {}
        self._manifest = b""  # built on first use

    def __repr__(self) -> str:
        return f"Receiver({self._endpoint.app!r}, jobs={sorted(self._jobs)})"

    def _check(self, dedupe: str) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise UsageError(f"bad prefix {quote(self.prefix)}: use a path like /cron")
        if urlsplit(self._endpoint.url).query or urlsplit(self._endpoint.url).fragment:
            raise UsageError(f"bad base_url {quote(self._endpoint.url)}: no query or fragment is allowed")
        if not TOLERANCE_MIN_S <= self._window_s <= TOLERANCE_MAX_S:
            raise UsageError(f"bad window_seconds {self._window_s:g}: allowed are 30 to 300")
        if self.body_max < 0:
            raise UsageError(f"bad body_max {self.body_max}: it must be a number of bytes from 0 on")
        if not LEASE_MIN_S <= self._options.lease_s <= LEASE_MAX_S:
            raise UsageError(f"bad lease_seconds {self._options.lease_s:g}: allowed are 3 to 3,600")
        if not self._options.keep_s > self._options.lease_s:
            raise UsageError("bad keep_days: a receipt must be kept for longer than a lease")
        if self._options.is_fenced and not dedupe:
            raise UsageError(
                'reject_stale_fence needs a place for fences: add dedupe="sqlite:///PATH" or another store'
            )
        if self._options.is_fenced and self._accepts_v1:
            raise UsageError(
                "reject_stale_fence needs signed fences, and accept_v1 trusts no fence: remove one of them"
            )

    # Declaring.

    def job(
        self,
        *schedules: str,
        name: str = "",
        timezone: str = "UTC",
        method: str = "POST",
        headers: dict[str, str] | None = None,
        body: str = "",
        timeout_seconds: int = 60,
        max_attempts: int = 3,
        min_seconds: int = 1,
        max_seconds: int = 60,
        concurrency: str = "Forbid",
        concurrency_scope: str = "host",
    ) -> Callable[[_F], _F]:
        """Declare the decorated function as a job.  The options are the fields of a version 1 manifest."""
        retries = {"max_attempts": max_attempts, "min_seconds": min_seconds, "max_seconds": max_seconds}
        policy = {"concurrency": concurrency, "concurrency_scope": concurrency_scope}
        document = {
            "schedules": list(schedules),
            "timezone": timezone,
            "request": {"method": method, "headers": headers or {}, "body": body},
            "policy": {**policy, "timeout_seconds": timeout_seconds, "retries": retries},
        }

        def declared(function: _F) -> _F:
            self._declare({"name": name or _name_of(function), **document}, function)
            return function

        return declared

    def _declare(self, document: dict[str, Any], function: Callable[..., Any]) -> None:
        job = declare(self._endpoint, document, function)
        if job.name in self._jobs:
            raise UsageError(
                f"bad job {quote(job.name)}: there is one of this name; choose another with name="
            )
        if self._options.is_fenced and document["policy"]["concurrency"] == "Allow":
            raise UsageError(
                f"bad job {quote(job.name)}: with Allow its fires run together, and the newer fence would "
                "refuse the older fire; use Forbid, or a receiver without reject_stale_fence"
            )
        if len(self._jobs) == JOBS_MAX:
            raise UsageError(f"bad job {quote(job.name)}: an app has {JOBS_MAX} jobs at most")
        self._manifest = b""
        self._jobs[job.name] = job

    # Mounting.

    def asgi(self, inner: AsgiApp | None = None) -> AsgiApp:
        """Return an ASGI app; `inner` gets every request that is not for this receiver."""
        from detent.receive.asgi import asgi_app

        return asgi_app(self, inner)

    def wsgi(self, inner: WsgiApp | None = None) -> WsgiApp:
        """Return a WSGI app; `inner` gets every request that is not for this receiver."""
        from detent.receive.wsgi import wsgi_app

        return wsgi_app(self, inner)

    def blueprint(self) -> Any:
        """For Flask: `app.register_blueprint(cron.blueprint())`."""
        from detent.receive.flask import blueprint

        return blueprint(self)

    def urlpatterns(self) -> list[Any]:
        """For Django: `urlpatterns = [*cron.urlpatterns(), …]`."""
        from detent.receive.django import urlpatterns

        return urlpatterns(self)

    def owns(self, path: str) -> bool:
        """True if a request to this path, below the mount point, is for this receiver."""
        below = self._verifier.below(path)
        return below == MANIFEST_PATH or below.startswith(f"{self.prefix}/")

    # Answering.

    def receive(self, incoming: Incoming, run_async: RunAsync = run_alone) -> Reply:
        return run_blocking(self._answer(incoming, on_thread(run_async)))

    async def receive_async(self, incoming: Incoming) -> Reply:
        return await self._answer(incoming, on_loop)

    def manifest(self) -> bytes:
        self._manifest = self._manifest or manifest_of(self._endpoint, list(self._jobs.values()))
        return self._manifest

    async def _answer(self, incoming: Incoming, perform: Perform) -> Reply:
        try:
            return await self._dispatch(incoming, perform)
        except (Refusal, SignatureError) as error:
            name = error.name if isinstance(error, Refusal) else type(error).__name__
            # A receiver at the root of an app gets every request for an unknown path: no warnings for those.
            level = logging.DEBUG if name == "BadPath" else logging.WARNING
            log.log(level, "refused %s: %s: %s", quote(incoming.path), name, error)
            return refuse(error)

    async def _dispatch(self, incoming: Incoming, perform: Perform) -> Reply:
        below = self._verifier.below(incoming.path)
        if below == MANIFEST_PATH:
            return self._serve_manifest(incoming)
        if not below.startswith(f"{self.prefix}/"):
            raise Refusal("BadPath", f"no job at {quote(incoming.path)}: jobs are below {self.prefix}/")
        job, fire, signed_key = self._admit(incoming, below)
        if self._dedupe:
            return await self._dedupe.run(job, fire, signed_key, perform)
        return await run(job, fire, perform)

    def _serve_manifest(self, incoming: Incoming) -> Reply:
        if incoming.method != "GET":
            raise Refusal("BadMethod", f"bad method {quote(incoming.method)}: use GET for the manifest")
        if not self._jobs:
            raise Refusal("NoJobs", "this app has not declared a job yet")
        if self._is_manifest_signed:
            self._verifier.verify(incoming, MANIFEST_PATH)
        return Reply(200, self.manifest(), JSON)

    def _admit(self, incoming: Incoming, below: str) -> tuple[DeclaredJob, ReceivedFire, str]:
        """Verify the request.  Return its job, its fire, and the key that identifies the fire for
        deduplication, which only the signer can choose."""
        if incoming.body is None:
            raise Refusal("BodyTooLarge", f"the body is too large: allowed are {self.body_max} bytes")
        headers, is_identified = incoming.headers, not self._accepts_v1
        index = self._verifier.verify(incoming, below, identity_of(headers) if is_identified else None)
        name = below.removeprefix(f"{self.prefix}/")
        job = self._jobs.get(name)
        if job is None:
            raise Refusal("UnknownJob", f"there is no job {quote(name)} here{did_you_mean(name, self._jobs)}")
        if incoming.method != job.method:
            wanted = f"the job {job.name} takes {job.method}"
            raise Refusal("BadMethod", f"bad method {quote(incoming.method)}: {wanted}")
        fire = read_fire(headers, self._endpoint.app, job.name, is_identified=is_identified)
        signed_key = fire.key if is_identified else f"v1:{signature_id(headers['x-cron-signature'])}"
        return job, fire._replace(body=incoming.body, secret_index=index), signed_key


def _name_of(function: Callable[..., Any]) -> str:
    """The name of the function in the form of a job's name."""
    return getattr(function, "__name__", type(function).__name__).strip("_").replace("_", "-").lower()
