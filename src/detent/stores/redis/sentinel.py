"""Which Redis is the master?  More than half of the Sentinels that a URL names must say so.

- A master that was cut off from its Sentinels still answers whoever reaches it, while they promote a
  replica.  So the question is asked again before a call, where the last answer is older than `CONFIRM_S`:
  less than the margin by which work ends before its claim does, and less than it takes to promote.  Claims
  of the old master are then over before the new one grants any, whatever it has forgotten.
- One Sentinel alone may be on the wrong side of a cut: name all of them.
- Those that did not answer are asked last, so that a dead one costs no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from detent import clock
from detent.errors import StoreUnavailable

CONFIRM_S = 0.4
ANSWER_S = 1.0  # for one Sentinel
Host = tuple[str, int]


class Sentinels:
    def __init__(self, clients: Sequence[Any], service: str, where: str) -> None:
        """`clients` are redis-py's, one for each Sentinel; `where` is what messages call them."""
        self._clients, self._service, self._where = list(clients), service, where
        self._master: Host | None = None
        self._asked_at = 0.0

    def master(self) -> Host:
        """The master, as it was no longer than `CONFIRM_S` ago."""
        now = clock.boottime()
        if self._master is None or now > self._asked_at + CONFIRM_S:
            self._master = None  # whatever comes now
            self._master, self._asked_at = self._ask(), now
        return self._master

    def forget(self) -> None:
        """Ask again, however new the last answer is."""
        self._master = None

    def close(self) -> None:
        for client in self._clients:
            client.connection_pool.disconnect()

    def _ask(self) -> Host:
        votes, silent = Counter[Host](), list[Any]()
        troubles: list[Exception] = []
        for client in self._clients:
            try:
                said = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except Exception as error:  # the client's own; it is told below
                troubles.append(error)
                silent.append(client)
                continue
            if said:
                named = str(said[0]), int(said[1])
                votes[named] += 1
                if 2 * votes[named] > len(self._clients):
                    self._ask_last(silent)
                    return named
        self._ask_last(silent)
        raise self._no_majority(votes, troubles)

    def _ask_last(self, silent: Sequence[Any]) -> None:
        self._clients.sort(key=lambda client: client in silent)

    def _no_majority(self, votes: Mapping[Host, int], troubles: Sequence[Exception]) -> Exception:
        count, answered = len(self._clients), len(self._clients) - len(troubles)
        if not answered:
            return troubles[0]
        told = "they do not agree who is the master"
        if not votes:
            told = "they know no such service"
        elif 2 * answered <= count:
            told = f"{answered} of {count} answer, and more than half must name the master: {troubles[0]}"
        return StoreUnavailable(f"{self._where}: {told}")


def sentinel_options(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the Sentinels are reached with: TLS as the master is, but a user and a password of their own."""
    shared = {name: value for name, value in options.items() if name.startswith(("ssl_", "connection_class"))}
    times = {name: min(ANSWER_S, options[name]) for name in ("socket_timeout", "socket_connect_timeout")}
    return {**shared, **times, "decode_responses": True, **given}
