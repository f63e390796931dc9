"""Which hosts a URL may name that somebody else wrote: public ones, or those that were allowed.

1. An address is public if no registry says otherwise.  Of IPv6 only what is given out to the public is
   (2000::/3), without what carries an IPv4 address inside: 6to4, Teredo; mapped ones and NAT64 lie outside.
2. A host is a name, four decimal numbers, or an IPv6 address.  Every other spelling of a number (octal, hex,
   short, `%31`) is refused, wherever it leads: what one program reads as public another reads as private.
3. A list of hosts narrows that: `api.example.com`, `*.example.com` (not `example.com` itself), `10.0.0.5`,
   each also with a port.  A host that is listed in full may be private or on this machine; what is listed by
   its address may be anything.  A name never leads to a link-local address: the keys of a machine are there.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from detent.errors import UsageError
from detent.text import quote

NAME_MAX = 253  # characters
PRIVATE = frozenset({"private", "loopback", "shared"})  # what a listed name may lead to

_PUBLIC6 = ip_network("2000::/3")
_SPECIAL = [
    (ip_network(network), word)
    for network, word in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.100.100.200/32", "metadata"),
        ("100.64.0.0/10", "shared"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "metadata"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.31.196.0/24", "reserved"),
        ("192.52.193.0/24", "reserved"),
        ("192.88.99.0/24", "6to4"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "reserved"),
        ("3fff::/20", "reserved"),
        ("fd00:ec2::/32", "metadata"),
        ("fd20:ce::/32", "metadata"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
]
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL = (
    "localhost local localdomain internal intranet lan home.arpa svc cluster.local metadata.goog onion test"
)
_NEVER_PUBLIC = (*_LOCAL.split(), "invalid", "example", "arpa")
_LISTED = re.compile(r"(\[[^\]]+\]|[^:\[\]]+|[0-9a-fA-F.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)(?::([0-9]{1,5}))?")

Address = IPv4Address | IPv6Address


class Host(NamedTuple):
    """What a URL names, in the one spelling that it has here."""

    text: str
    address: Address | None = None  # None: it is a name


class Listed(NamedTuple):
    """An entry of a list of hosts."""

    host: Host
    port: int | None = None  # None: any
    below: bool = False  # not the host itself, but those whose names end in it


class Reach(NamedTuple):
    """Where requests may go whose URLs come from a message."""

    hosts: tuple[str, ...] = ()  # none: to every public one


def is_public(address: str | Address) -> bool:
    """Is it an address that anybody on the internet has in common?"""
    return kind_of(address) == "public"


@lru_cache(maxsize=4096)
def kind_of(address: str | Address) -> str:
    """`public`, or a word for what it is instead."""
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return "no address"
    if getattr(address, "scope_id", None):
        return "link-local"
    for network, word in _SPECIAL:
        if address in network:
            return word
    return "public" if address.version == 4 or address in _PUBLIC6 else "reserved"


def parse_host(text: str) -> Host:
    """The host that a URL names; a `UsageError` where it is none, or spelt so that it could be two."""
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in plain:
        if "%" in plain or not plain.isascii():
            raise UsageError(
                f"bad host {quote(text)}: an IPv6 address has neither a zone nor other letters here"
            )
        return _address_host(text, plain)
    plain = _ascii(text).lower().removesuffix(".")
    labels = plain.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _address_host(text, plain)
    if len(plain) > NAME_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise UsageError(f"bad host {quote(text)}: it is neither a name nor an address")
    return Host(plain)


def _ascii(text: str) -> str:
    """Letters of all scripts as names have them: digits and dots of other scripts become ours."""
    try:
        return text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        raise UsageError(f"bad host {quote(text)}: it is neither a name nor an address") from None


def _address_host(text: str, plain: str) -> Host:
    try:
        address = ip_address(plain)
    except ValueError:
        raise UsageError(
            f"bad host {quote(text)}: an address is written as four decimal numbers, or as IPv6"
        ) from None
    return Host(str(address), address)


def check_host(host: Host, port: int, reach: Reach) -> None:
    """A `UsageError` if no request may go there, wherever a name leads."""
    if reach.hosts:
        if not _entries(host, port, reach):
            raise UsageError(
                f"host {quote(host.text)}, port {port} is not among those that messages may name"
            )
    elif host.address is None and _is_never_public(host.text):
        raise UsageError(f"host {quote(host.text)} is no public name; {_ADVICE}")
    if host.address is not None:
        check_address(host.address, host, port, reach)


def check_address(address: Address, host: Host, port: int, reach: Reach) -> None:
    """A `UsageError` if a request for this host may not go to this address, which it led to."""
    kind = kind_of(address)
    if kind == "public":
        return
    for entry in _entries(host, port, reach):
        if entry.host.address == address or (not entry.below and kind in PRIVATE):
            return
    leads = "is" if host.address else f"leads to {address},"
    raise UsageError(f"host {quote(host.text)} {leads} no public address ({kind}); {_ADVICE}")


def check_reach(reach: Reach) -> None:
    """A `UsageError` if an entry of its list cannot be read."""
    _listed(reach.hosts)


def _entries(host: Host, port: int, reach: Reach) -> list[Listed]:
    """Those that this host is allowed by."""
    return [
        one
        for one in _listed(reach.hosts)
        if one.port in (None, port)
        and (host.text.endswith(f".{one.host.text}") if one.below else one.host == host)
    ]


@lru_cache(maxsize=64)
def _listed(hosts: tuple[str, ...]) -> list[Listed]:
    return [_entry(text) for text in hosts]


def _entry(text: str) -> Listed:
    found = _LISTED.fullmatch(text.removeprefix("*."))
    below = text.startswith("*.")
    port = int(found[2]) if found and found[2] else None
    if not found or (port is not None and not 1 <= port <= 65535):
        raise UsageError(
            f'bad host {quote(text)} in a list: write "api.example.com", "*.example.com" or "h:8080"'
        )
    host = parse_host(found[1])
    if below and host.address is not None:
        raise UsageError(f"bad host {quote(text)} in a list: nothing is below an address")
    return Listed(host, port, below)


def _is_never_public(name: str) -> bool:
    """One word is a name of this network; so are those that were set apart for it."""
    return (
        "." not in name or name.endswith(tuple(f".{word}" for word in _NEVER_PUBLIC)) or name in _NEVER_PUBLIC
    )


_ADVICE = "list the host in `hosts` to allow it"
