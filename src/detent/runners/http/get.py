"""Fetches one document by a signed GET.

The rules are those of a fire's request: one request, no redirect, no proxy, a hard deadline, and no secret in
error texts.
"""

from __future__ import annotations

import http.client

from detent import clock
from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, sign
from detent.runners.http.connection import HttpRequest, Interrupted, Watch, get_response, read_body
from detent.runners.http.request import Endpoint, connection_headers, explain, open_socket, parse_url
from detent.runners.lifeline import Lifeline
from detent.text import plural


def fetch(url: str, secret: Secret | None, *, timeout_s: float, size_max: int) -> bytes:
    """Return the body of the answer.  Raises `UsageError` if the status is not 200, or a limit is
    exceeded."""
    endpoint = parse_url(url)
    watch = Watch(Lifeline(float("inf")), timeout_s)
    try:
        return _exchange(endpoint, secret, watch, size_max)
    except Interrupted as interrupted:
        raise UsageError(f"{endpoint.place} took too long: {interrupted.outcome.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(explain(error, endpoint.place)) from None


def _exchange(endpoint: Endpoint, secret: Secret | None, watch: Watch, size_max: int) -> bytes:
    with open_socket(endpoint, watch) as sock, get_response(sock, _compose(endpoint, secret)) as response:
        _check_status(response.status, endpoint)
        return _read(response, endpoint, size_max)


def _compose(endpoint: Endpoint, secret: Secret | None) -> HttpRequest:
    headers = [("Accept", "application/json")]
    if secret:
        signature = sign(SignedRequest("GET", endpoint.target), secret, clock.now())
        headers.append(("X-Cron-Signature", signature))
    return HttpRequest("GET", endpoint.target, headers + connection_headers(headers, endpoint))


def _check_status(status: int, endpoint: Endpoint) -> None:
    if status == 200:
        return
    advice = {401: ": give the right secret with --secret-ref", 404: ": there is nothing at this path"}
    text = advice.get(status, "")
    if 300 <= status < 400:
        text = ": redirects are not followed; use the address that it leads to"
    raise UsageError(f"{endpoint.place} answered with status {status}{text}")


def _read(response: http.client.HTTPResponse, endpoint: Endpoint, size_max: int) -> bytes:
    content = b""
    for piece in read_body(response):
        content += piece
        if len(content) > size_max:
            raise UsageError(f"{endpoint.place} answered with more than {plural(size_max, 'byte')}")
    return content
