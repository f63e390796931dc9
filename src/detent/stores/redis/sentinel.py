"""Asks Sentinels for the master of a Redis service.  More than half of them must agree.

A master that lost contact to its Sentinels still answers the clients that reach it, while they promote a
replica.  So a call first asks again if the last answer is older than `CONFIRM_S`.  That is less than the
margin by which work ends before its claim, and less than a promotion takes: the claims of the old master have
ended before the new master grants any.

One Sentinel alone may be on the wrong side of a network partition, so a URL should name all of them.
Sentinels that did not answer are asked last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from detent import clock
from detent.errors import StoreUnavailable
from detent.stores.redis.address import Host

CONFIRM_S = 0.4


class Sentinels:
    def __init__(self, clients: Sequence[Any], service: str, where: str) -> None:
        """`clients` are redis-py clients, one for each Sentinel; `where` is how messages name them."""
        self._clients, self._service, self._where = list(clients), service, where
        self._master: Host | None = None
        self._asked_at = 0.0

    def master(self) -> Host:
        """The master, at most `CONFIRM_S` ago."""
        now = clock.boottime()
        if self._master is None or now > self._asked_at + CONFIRM_S:
            self._master = None  # stays None if asking fails
            self._master, self._asked_at = self._ask(), now
        return self._master

    def forget(self) -> None:
        """Ask again before the next call."""
        self._master = None

    def close(self) -> None:
        for client in self._clients:
            client.connection_pool.disconnect()

    def _ask(self) -> Host:
        votes, troubles, count = Counter[Host](), list[Exception](), len(self._clients)
        for client in self._clients.copy():
            try:
                said = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except Exception as error:  # any error of redis-py; reported below
                troubles.append(error)
                self._clients.sort(key=lambda one: one is client)  # it is asked last from now on
                continue
            if said:
                named = str(said[0]), int(said[1])
                votes[named] += 1
                if 2 * votes[named] > count:
                    return named
        answered = count - len(troubles)
        if not answered:
            raise troubles[0]
        why = "they do not agree who is the master"
        if not votes:
            why = "they know no such service"
        elif 2 * answered <= count:
            why = f"{answered} of {count} answer, and more than half must name the master: {troubles[0]}"
        raise StoreUnavailable(f"{self._where}: {why}")
