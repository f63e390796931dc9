"""Connects to a host in a URL that a message contains, if requests may go there.

The name is resolved once.  All its addresses must be allowed.  The connection goes to one of them, and its
peer is checked again before anything is sent, so that a second answer of the resolver cannot lead
elsewhere.  TLS still verifies the name.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from detent.errors import UsageError
from detent.messages.addresses import Host, Reach, check_address, check_host, parse_host
from detent.runners.http.connection import Address, Watch, WatchedSocket, look_up, reach

Resolver = Callable[[str, int, Watch], list[Address]]


def connect_within(
    allowed: Reach, host: str, port: int, watch: Watch, resolver: Resolver = look_up
) -> WatchedSocket:
    """Connect to this host.  Raises `UsageError` if no request may go there."""
    watch.patience_s()  # an attempt that is over does not even connect
    named = parse_host(host)
    check_host(named, port, allowed)
    addresses = resolver(named.text, port, watch)
    for address in addresses:
        _check(address[4][0], named, port, allowed)
    sock = reach(addresses, watch)
    try:
        peer: str = sock.getpeername()[0]
        if peer not in {address[4][0] for address in addresses}:
            raise UsageError(f"the connection led to {peer}, which is no address of {named.text}")
        _check(peer, named, port, allowed)
    except BaseException:
        sock.close()
        raise
    return sock


def _check(text: str, host: Host, port: int, allowed: Reach) -> None:
    try:
        address = ip_address(text)
    except ValueError:
        raise UsageError(f"host {host.text} leads to {text}, which is no address") from None
    check_address(address, host, port, allowed)
