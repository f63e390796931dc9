"""The hosts by name, and the options that each of them understands."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from detent.hosts.base import Host, Option, Settings

HOSTS = ("crontab", "systemd", "kubernetes", "eventbridge")

REMOTE = ("kubernetes", "eventbridge")  # they ring on no machine that we could look at


class HostOption(NamedTuple):
    """An option, and the hosts that understand it."""

    option: Option
    hosts: tuple[str, ...]


def open_host(name: str, settings: Settings) -> Host:
    """The host of this name.  Nothing is read or changed yet."""
    host: Host = _module(name).open_host(settings)
    return host


def host_options() -> list[HostOption]:
    """The options of all hosts, each once."""
    known: dict[str, HostOption] = {}
    for host in HOSTS:
        for option in _module(host).OPTIONS:
            before = known.get(option.name, HostOption(option, ()))
            known[option.name] = before._replace(hosts=(*before.hosts, host))
    return [*known.values()]


def _module(name: str) -> Any:
    return import_module(f"detent.hosts.{name}.host")
