"""Who may use the dashboard: users, roles, and the ways to find the user of a request.

- Without `--auth` only this machine may connect, and its user may operate.
- `token:REF` admits clients that send the secret as a bearer token, or as the password in a browser.
- `proxy:HEADER` trusts the user's name in a header, but only from the address of a trusted proxy.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Literal, NamedTuple

from detent.errors import UsageError
from detent.runners.secrets import resolve
from detent.text import quote
from detent.views.formatting import printable

if TYPE_CHECKING:
    from starlette.requests import Request

Role = Literal["read", "operate"]
NAME_MAX = 100  # characters of a user's name
ALLOWED = "use token:env:NAME, token:file:/PATH, read-token:env:NAME or proxy:HEADER"
Network = IPv4Network | IPv6Network
_KINDS: dict[str, Role] = {"token": "operate", "read-token": "read"}


class User(NamedTuple):
    name: str
    role: Role = "read"


Who = Callable[["Request"], "User | Awaitable[User | None] | None"]


class Token(NamedTuple):
    secret: bytes
    role: Role


def local_user(name: str) -> Who:
    """Admit clients on this machine."""

    def who(request: Request) -> User | None:
        address = request.client.host if request.client else ""
        return User(name, "operate") if is_loopback(address) else None

    return who


def read_only(who: Who) -> Who:
    """The same users, with the role `read`."""

    async def limited(request: Request) -> User | None:
        user = await user_of(who, request)
        return user._replace(role="read") if user else None

    return limited


async def user_of(who: Who, request: Request) -> User | None:
    found = who(request)
    return await found if isinstance(found, Awaitable) else found


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def parse_auth(
    texts: Sequence[str], proxies: Sequence[str], secrets: Mapping[str, str], env: Mapping[str, str]
) -> Who:
    """Return the function that finds the user of a request, as `--auth` and `--trusted-proxy` describe it."""
    tokens, headers = list[Token](), list[str]()
    trusted = tuple(map(_network, proxies))
    for text in texts:
        kind, _, rest = text.partition(":")
        if kind in _KINDS and rest:
            found = resolve([rest], secrets, env)
            if found.warnings:
                raise UsageError(f"bad --auth {kind}: {found.warnings[0]}; {ALLOWED}")
            tokens += [Token(secret.key(), _KINDS[kind]) for secret in found.secrets]
        elif kind == "proxy" and rest:
            if not trusted:
                raise UsageError(
                    f"bad --auth {quote(text)}: a header is only believed from a proxy;"
                    " name its address with --trusted-proxy"
                )
            headers.append(rest.lower())
        else:
            raise UsageError(f"bad --auth {quote(kind)}: {ALLOWED}")

    def who(request: Request) -> User | None:
        proxied = (user for header in headers if (user := _proxied(header, trusted, request)))
        return next(proxied, None) or _with_token(tokens, request)

    return who


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise UsageError(f"bad --trusted-proxy {quote(text)}: {error}; use 10.0.0.5 or 10.0.0.0/24") from None


def _proxied(header: str, trusted: Sequence[Network], request: Request) -> User | None:
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return None
    names = request.headers.getlist(header)
    if len(names) != 1 or not any(address in network for network in trusted):
        return None
    name = clean_name(names[0])
    return User(name, "operate") if name else None


def _with_token(tokens: Sequence[Token], request: Request) -> User | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    name, given = "", b""
    if scheme.lower() == "bearer":
        given = value.strip().encode()
    elif scheme.lower() == "basic":
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        given = password.encode()
    # Every token is compared, so that the duration reveals nothing about how close a guess is.
    roles = [token.role for token in tokens if hmac.compare_digest(token.secret, given)]
    return User(clean_name(name) or "token", roles[0]) if roles else None


def clean_name(text: str) -> str:
    """A name fit for a log and a note: printable, on one line, without brackets."""
    return printable(text).replace("(", "").replace(")", "").replace(" ", "_")[:NAME_MAX]
