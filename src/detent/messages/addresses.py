"""Decides which hosts the URL of a message may name: public ones, or those on a list.

1. An IPv4 address is public if no registry reserves it.  An IPv6 address is public if it is in 2000::/3 and
   does not contain an IPv4 address (6to4, Teredo, mapped, NAT64).
2. A host is a name, four decimal numbers or an IPv6 address.  Other spellings of numbers (octal, hex, short,
   `%31`) are refused: one program could read them as a public address and another as a private one.
3. A list allows only its entries: `api.example.com`, `*.example.com` (not `example.com` itself), `10.0.0.5`.
   Each may have a port.  A name listed in full may resolve to a private or loopback address.  A listed
   address may be of any kind.  A name never leads to a link-local address: cloud metadata services are there.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from detent.errors import UsageError
from detent.text import quote

NAME_MAX = 253  # characters
PRIVATE = frozenset({"private", "loopback", "shared"})  # kinds that a listed name may resolve to

_PUBLIC6 = ip_network("2000::/3")
_SPECIAL = [  # the first match counts
    (ip_network(network), kind)
    for kind, networks in (
        ("metadata", "100.100.100.200/32 168.63.129.16/32 fd00:ec2::/32 fd20:ce::/32"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("shared", "100.64.0.0/10"),
        ("unspecified", "0.0.0.0/8 ::/128"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("6to4", "192.88.99.0/24 2002::/16"),
        ("Teredo", "2001::/32"),
        ("NAT64", "64:ff9b::/96 64:ff9b:1::/48"),
        ("IPv4-mapped", "::ffff:0:0/96"),
        ("IPv4-compatible", "::/96"),
        ("reserved", "192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.175.48.0/24"),
        ("reserved", "198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"),
        ("reserved", "2001::/23 2001:db8::/32 2620:4f:8000::/48 3fff::/20"),
    )
    for network in networks.split()
]
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NEVER_PUBLIC = (  # domains for local use
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".svc", ".cluster.local"),
    *(".metadata.goog", ".onion", ".test", ".invalid", ".example", ".arpa"),
)
_LISTED = re.compile(r"(\[[^\]]+\]|[^:\[\]]+|[0-9a-fA-F.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)(?::([0-9]{1,5}))?")

Address = IPv4Address | IPv6Address


class Host(NamedTuple):
    text: str  # normalized
    address: Address | None = None  # None: a name


class HostEntry(NamedTuple):
    host: Host
    port: int | None = None  # None: any
    below: bool = False  # matches subdomains only


class Reach(NamedTuple):
    """Where the requests of messages may go."""

    hosts: tuple[str, ...] = ()  # empty: every public host


@lru_cache(maxsize=4096)
def kind_of(address: str | Address) -> str:
    """Return `public`, or why the address is not public."""
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return "no address"
    if getattr(address, "scope_id", None):
        return "link-local"
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    return "public" if address.version == 4 or address in _PUBLIC6 else "reserved"


def parse_host(text: str) -> Host:
    """Normalize the host of a URL; raise a `UsageError` if it is invalid or ambiguous."""
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in plain:
        if "%" in plain or not plain.isascii():
            raise UsageError(f"bad host {quote(text)}: write the IPv6 address in ASCII and without a zone")
        return _address_host(text, plain)
    plain = _ascii(text).lower().removesuffix(".")
    labels = plain.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _address_host(text, plain)
    if len(plain) > NAME_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise UsageError(f"bad host {quote(text)}: it is not a name or an address")
    return Host(plain)


def _ascii(text: str) -> str:
    """Encode other scripts for DNS, which also turns their digits and dots into ASCII."""
    try:
        return text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        raise UsageError(f"bad host {quote(text)}: it is not a name or an address") from None


def _address_host(text: str, plain: str) -> Host:
    try:
        address = ip_address(plain)
    except ValueError:
        raise UsageError(
            f"bad host {quote(text)}: write an address as four decimal numbers or as IPv6"
        ) from None
    return Host(str(address), address)


def check_host(host: Host, port: int, reach: Reach) -> None:
    """Raise a `UsageError` if no request may go to this host."""
    if reach.hosts:
        if not _entries(host, port, reach):
            raise UsageError(f"host {quote(host.text)}, port {port} is not on the list for messages")
    elif host.address is None and ("." not in host.text or f".{host.text}".endswith(_NEVER_PUBLIC)):
        raise UsageError(f"host {quote(host.text)} is not a public name; {_ADVICE}")
    if host.address is not None:
        check_address(host.address, host, port, reach)


def check_address(address: Address, host: Host, port: int, reach: Reach) -> None:
    """Raise a `UsageError` if a request must not go to this address, to which the host resolved."""
    kind = kind_of(address)
    if kind == "public":
        return
    for entry in _entries(host, port, reach):
        if entry.host.address == address or (not entry.below and kind in PRIVATE):
            return
    leads = "is" if host.address else f"resolves to {address},"
    raise UsageError(f"host {quote(host.text)} {leads} not a public address ({kind}); {_ADVICE}")


def check_reach(reach: Reach) -> None:
    """Raise a `UsageError` if an entry is invalid."""
    _listed(reach.hosts)


def _entries(host: Host, port: int, reach: Reach) -> list[HostEntry]:
    return [
        one
        for one in _listed(reach.hosts)
        if one.port in (None, port)
        and (host.text.endswith(f".{one.host.text}") if one.below else one.host == host)
    ]


@lru_cache(maxsize=64)
def _listed(hosts: tuple[str, ...]) -> list[HostEntry]:
    return [_entry(text) for text in hosts]


def _entry(text: str) -> HostEntry:
    found = _LISTED.fullmatch(text.removeprefix("*."))
    below = text.startswith("*.")
    port = int(found[2]) if found and found[2] else None
    if not found or (port is not None and not 1 <= port <= 65535):
        raise UsageError(
            f'bad host {quote(text)} in a list: write "api.example.com", "*.example.com" or "h:8080"'
        )
    host = parse_host(found[1])
    if below and host.address is not None:
        raise UsageError(f"bad host {quote(text)} in a list: an address has no subdomains")
    return HostEntry(host, port, below)


_ADVICE = "list the host in `hosts` to allow it"
