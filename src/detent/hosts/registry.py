"""The hosts by name, and their command-line options."""

from importlib import import_module
from typing import Any, NamedTuple

from detent.hosts.base import Host, Option, Settings

HOSTS = ("crontab", "systemd", "kubernetes", "eventbridge")
REMOTE = ("kubernetes", "eventbridge")  # their triggers do not run on this machine


class HostOption(NamedTuple):
    option: Option
    hosts: tuple[str, ...]


def open_host(name: str, settings: Settings) -> Host:
    host: Host = _module(name).open_host(settings)
    return host


def host_options() -> list[HostOption]:
    """Return the options of all hosts, without duplicates."""
    known: dict[str, HostOption] = {}
    for host in HOSTS:
        for option in _module(host).OPTIONS:
            before = known.get(option.name, HostOption(option, ()))
            known[option.name] = before._replace(hosts=(*before.hosts, host))
    return [*known.values()]


def _module(name: str) -> Any:
    return import_module(f"detent.hosts.{name}.host")
