"""Makes one attempt of a request: signs it, sends it and judges the answer.

- One attempt is one request: no redirect, no proxy of the environment, no repetition.  Path and query are
  sent as they were given; only characters that a request line cannot contain are percent-encoded.
- The deadline is hard and covers everything, from the name lookup to the last byte of the answer.
- If the URL comes from a message, `reach` says where it may lead (`addresses`).
- The request is signed after connecting, with the first secret.  Our headers override those of the manifest.
- `send` returns how it ended and does not raise.  The result contains neither a secret nor the user name and
  password of the URL.
"""

import http.client
import re
import socket
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from detent import clock
from detent.errors import UsageError
from detent.model import Claim, End, Outcome, Request
from detent.rules.outcomes import NOT_SENT, no_secret
from detent.runners.http.connection import (
    HttpRequest,
    Interrupted,
    TlsFailed,
    Watch,
    WatchedSocket,
    connect,
    get_response,
    read_body,
    start_tls,
)
from detent.runners.lifeline import TAIL_MAX, Lifeline
from detent.text import quote

if TYPE_CHECKING:
    from detent.manifest.secret_refs import Secret
    from detent.messages.addresses import Reach

BODY_MAX = 1_048_576  # bytes of an answer that are read: the status alone decides the outcome
LABEL_MAX = 63  # characters between two dots of a host name

_URL = re.compile(r"(https?)://([^/?#\\\x00-\x20\x7f]+)((?:[/?][^#]*)?)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(?:.*@)?(\[[0-9a-f:.]+\]|[^\[\]:@]+)(?::([0-9]{0,5}))?", re.IGNORECASE)
_UNSENDABLE = re.compile(r"[^\x21-\x7e]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = ("connection", "content-length", "expect", "transfer-encoding", "upgrade")


class Endpoint(NamedTuple):
    secure: bool
    host: str
    port: int
    target: str  # path and query, as sent
    credentials: str = ""  # the Authorization header for the user name and password

    def __repr__(self) -> str:
        return f"Endpoint({self.place})"

    @property
    def place(self) -> str:
        """Host and port, for error texts."""
        return f"{self._bracketed}:{self.port}"

    @property
    def authority(self) -> str:
        """The Host header."""
        return self._bracketed if self.port == (443 if self.secure else 80) else self.place

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


class _Answer:
    """The answer so far, also if the attempt is interrupted."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.again_after_s: float | None = None
        self.body = bytearray()  # the end of it


def send(
    request: Request,
    claim: Claim,
    *,
    secrets: Sequence["Secret"],
    timeout_s: float,
    lifeline: Lifeline,
    reach: "Reach | None" = None,
) -> End:
    """Make one attempt in at most `timeout_s` (0: as long as the lifeline allows), and return how it
    ended."""
    began = clock.boottime()
    answer = _Answer()
    watch = Watch(lifeline, timeout_s)
    outcome = _attempt(_Sending(request, claim, secrets, reach), watch, answer)
    return End(
        outcome,
        status=answer.status,
        took_s=clock.boottime() - began,
        tail=bytes(answer.body),
        again_after_s=answer.again_after_s,
    )


class _Sending:
    def __init__(
        self, request: Request, claim: Claim, secrets: Sequence["Secret"], reach: "Reach | None"
    ) -> None:
        self.request, self.claim, self.secrets = request, claim, secrets
        self.reach = reach  # None: anywhere


def _attempt(sending: _Sending, watch: Watch, answer: _Answer) -> Outcome:
    request = sending.request
    if request.secret_refs and not sending.secrets:
        from detent.manifest.secret_refs import display_ref

        return no_secret(", ".join(map(display_ref, request.secret_refs)))
    try:
        endpoint = parse_url(request.url)
        return _exchange(sending, endpoint, watch, answer)
    except UsageError as error:
        return Outcome("failed", str(error))
    except Interrupted as interrupted:
        has_claim = interrupted.outcome.cause != "claim-lost"
        return interrupted.outcome if has_claim or watch.sent else NOT_SENT
    except (OSError, http.client.HTTPException) as error:
        return Outcome("failed", explain(error, endpoint.place))


def _exchange(sending: _Sending, endpoint: Endpoint, watch: Watch, answer: _Answer) -> Outcome:
    with open_socket(endpoint, watch, sending.reach) as sock:
        request = compose(sending.request, sending.claim, endpoint, sending.secrets)
        with get_response(sock, request) as response:
            answer.status = response.status
            retry_after, date = response.getheader("retry-after", ""), response.getheader("date", "")
            answer.again_after_s = again_after_s(retry_after, date, clock.now())
            _read(response, answer.body)
            return judge(response.status)


def open_socket(endpoint: Endpoint, watch: Watch, reach: "Reach | None" = None) -> WatchedSocket:
    """Connect to the endpoint, with TLS for https."""
    if reach is None:
        sock = connect(endpoint.host, endpoint.port, watch)
    else:
        from detent.runners.http.addresses import connect_within  # late: most URLs come from a manifest

        sock = connect_within(reach, endpoint.host, endpoint.port, watch)
    return start_tls(sock, endpoint.host) if endpoint.secure else sock


# The request.


def parse_url(url: str) -> Endpoint:
    """Split a URL into its parts.  Raises `UsageError`."""
    shape = _URL.fullmatch(url)
    authority = _AUTHORITY.fullmatch(shape[2]) if shape else None
    if not shape or not authority:
        raise UsageError(f"bad url {_shown(url)}: it must be http:// or https:// with a host")
    secure = shape[1].lower() == "https"
    port = int(authority[2] or (443 if secure else 80))
    if not 1 <= port <= 65535:
        raise UsageError(f"bad url {_shown(url)}: port {port} is not in 1–65535")
    return Endpoint(
        secure=secure,
        host=_ascii_host(authority[1].strip("[]"), url),
        port=port,
        target=_target(shape[3]),
        credentials=_credentials(shape[2].rpartition("@")[0]),
    )


def _shown(url: str) -> str:
    return quote(re.sub(r"//[^/?#]*@", "//", url))


def _ascii_host(host: str, url: str) -> str:
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not all(1 <= len(label) <= LABEL_MAX for label in name.removesuffix(".").split(".")):
        raise UsageError(f"bad url {_shown(url)}: the host is not a valid name")
    return name


def _target(given: str) -> str:
    rooted = given if given.startswith("/") else "/" + given
    return _UNSENDABLE.sub(_percent, rooted)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in found[0].encode("utf-8", "surrogatepass"))


def _credentials(userinfo: str) -> str:
    from urllib.parse import unquote_to_bytes

    if not userinfo:
        return ""
    name, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return "Basic " + b64encode(pair).decode("ascii")


def compose(request: Request, claim: Claim, endpoint: Endpoint, secrets: Sequence["Secret"]) -> HttpRequest:
    """Return the request as it is sent, signed now."""
    now = clock.now()
    body = request.body.encode("utf-8", "surrogatepass")
    method = _token("method", request.method.upper())
    unsigned = HttpRequest(method, endpoint.target, [], body)
    signature = _signature(request, claim, unsigned, secrets[0], now) if secrets else ""
    headers = fire_headers(request, claim, job_name(claim.fire.job), now, signature)
    headers += connection_headers(headers, endpoint)
    if body or method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", str(len(body))))
    return HttpRequest(method, endpoint.target, headers, body)


def _signature(request: Request, claim: Claim, unsigned: HttpRequest, secret: "Secret", now: datetime) -> str:
    # Late: many requests are not signed.
    from detent.messages.signing import Identity, SignedRequest, sign, sign_webhook

    fire = claim.fire
    if request.scheme == "standard-webhooks":
        return sign_webhook(fire.run_id, unsigned.body, secret, now)
    # The headers that the signature covers, as `fire_headers` writes them.
    identity = Identity(_one_line(fire.key), _one_line(fire.run_id), str(claim.attempt), str(claim.fence))
    return sign(SignedRequest(unsigned.method, unsigned.target, unsigned.body, identity), secret, now)


def job_name(full: str) -> str:
    """Return the job's own name, without app and host."""
    return full.partition(".")[2].partition("/")[0] or full


def fire_headers(
    request: Request, claim: Claim, name: str, started_at: datetime, signature: str
) -> list[tuple[str, str]]:
    """Return the headers about the fire, and those of the manifest that do not conflict with them."""
    previous = claim.previous_success_at
    is_webhook = request.scheme == "standard-webhooks"
    ours = [
        ("X-Cron-Signature", "" if is_webhook else signature),
        ("webhook-id", claim.fire.run_id if is_webhook else ""),
        ("webhook-timestamp", _unix(started_at) if is_webhook else ""),
        ("webhook-signature", signature if is_webhook else ""),
        ("X-Cron-Run-Id", claim.fire.run_id),
        ("X-Cron-Schedule-Name", name),
        ("X-Cron-Fire-Time", _unix(claim.fire.due_at)),
        ("X-Cron-Fire-Time-Actual", _unix(started_at)),
        ("X-Cron-Attempt", str(claim.attempt)),
        ("X-Cron-Previous-Success-Time", _unix(previous) if previous else ""),
        ("X-Cron-Fence", str(claim.fence)),
        ("Idempotency-Key", claim.fire.key),
    ]
    given = [(_token("header name", name), value) for name, value in request.headers if not _is_ours(name)]
    if is_webhook:
        given = [pair for pair in given if not pair[0].lower().startswith("webhook-")]
    return [(name, _one_line(value)) for name, value in [*[pair for pair in ours if pair[1]], *given]]


def _is_ours(name: str) -> bool:
    # Many servers treat `_` and `-` in a name alike: both reach the app as HTTP_X_CRON_….
    plain = name.strip().lower().replace("_", "-")
    return plain.startswith("x-cron-") or plain == "idempotency-key" or plain in _FRAMING


def _token(what: str, text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise UsageError(f"bad {what} {quote(text)}: allowed are letters, digits and -")
    return text


def _one_line(value: str) -> str:
    return _CONTROL.sub(" ", value).strip()


def _unix(instant: datetime) -> str:
    return str(int(instant.timestamp()))


def connection_headers(given: list[tuple[str, str]], endpoint: Endpoint) -> list[tuple[str, str]]:
    names = {name.lower() for name, _ in given}
    ours = [
        ("Host", endpoint.authority),
        ("User-Agent", "detent"),
        ("Accept-Encoding", "identity"),
        ("Authorization", endpoint.credentials),
    ]
    return [pair for pair in ours if pair[1] and pair[0].lower() not in names] + [("Connection", "close")]


# The answer.


def _read(response: http.client.HTTPResponse, body: bytearray) -> None:
    """Keep the end of the body as it arrives, so that an interrupted attempt has it too."""
    total = 0
    for piece in read_body(response):
        total += len(piece)
        body += piece
        del body[:-TAIL_MAX]
        if total >= BODY_MAX:
            return


def judge(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome("succeeded")
    if 300 <= status < 400:
        return Outcome("failed", f"HTTP {status}: redirects are not followed")
    return Outcome("rejected" if 400 <= status < 500 else "failed", f"HTTP {status}")


def again_after_s(asked: str, said_at: str, now: datetime) -> float | None:
    """Return the wait of a Retry-After header.  A date counts from the server's own date, if it sent one."""
    if not asked:
        return None
    if re.fullmatch(r"[0-9]{1,9}", asked.strip()):
        return float(asked)
    wanted_at = _http_date(asked)
    if wanted_at is None:
        return None
    return max(0.0, (wanted_at - (_http_date(said_at) or now)).total_seconds())


def _http_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed if parsed.tzinfo else None


def explain(error: Exception, place: str) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    match error:
        case ConnectionRefusedError():
            return f"connection refused by {place}"
        case socket.gaierror():
            return f"no address found for {place}: {said}"
        case TlsFailed():
            return f"no TLS with {place}: {error}"
        case http.client.RemoteDisconnected():
            return f"{place} closed the connection without an answer"
        case http.client.IncompleteRead():
            return f"the answer of {place} broke off"
        case http.client.BadStatusLine() | http.client.UnknownProtocol():  # their text is the server's
            return f"{place} did not answer in HTTP (no status line)"
        case ConnectionError():
            return f"the connection to {place} broke: {said}"
        case OSError():
            return f"cannot reach {place}: {said}"
    return f"{place} did not answer in HTTP ({said})"
