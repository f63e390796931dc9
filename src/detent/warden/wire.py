"""The client's side of the warden protocol, without I/O: orders become bytes, received bytes become events.

`program/loop.py` lists the messages.  One `WardenProtocol` belongs to one warden process: it knows which
environments and pools this warden has already received.
"""

import base64
import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.model import End, Outcome
from detent.runners.command import BaseEnv, ProcessExit, Spec, end_of
from detent.warden.program.inbox import REQUEST

if TYPE_CHECKING:  # a trigger that runs a command does not load what calls need
    from detent.runners.call.spec import CallSpec, GuardSpec, PoolSpec

POOLS_MAX = 256  # pools that a warden keeps; the one that was unused for longest is closed


class Pong(NamedTuple):
    """The answer to a ping."""


class Started(NamedTuple):
    id: str
    pid: int


class Guarded(NamedTuple):
    ids: list[str]


class Refused(NamedTuple):
    """The task was not started: it was too late, or this node is outdated for the reason `why`."""

    id: str
    why: str = ""


class Held(NamedTuple):
    """The task was not started: these processes hold its lane."""

    id: str
    by: list[int]


class Replaced(NamedTuple):
    """The child that ran this call takes no further call."""

    id: str
    why: str


class Part(NamedTuple):
    """Progress of a batch: answers of its child as JSON, or the number of messages that were not started.
    True and False: an import begins or has ended."""

    id: str
    part: str | int


class Gone(NamedTuple):
    """The last process of the task has ended."""

    id: str
    exit: ProcessExit
    result: str


Event = Pong | Started | Guarded | Refused | Held | Replaced | Part | Gone
_EVENTS: dict[str, type[Event]] = {
    event.__name__.lower(): event for event in (Pong, Started, Guarded, Refused, Held, Replaced, Part)
}


class WardenProtocol:
    def __init__(self, on_order: Callable[[], None] = lambda: None) -> None:
        """`on_order` is called when there is something to send."""
        self._on_order = on_order
        self._received = b""
        self._lines: list[bytes] = []
        self._guards: list[list[object]] = []
        self._released: list[str] = []
        self._terms: dict[str, tuple[float, float]] = {}
        self._base_envs: dict[str, BaseEnv] = {}
        self._pools: dict[str, None] = {}  # the one that was unused for longest comes first

    def start(self, spec: "Spec | CallSpec", trusted_by: float, term_by: float) -> None:
        """Order a command or a call: SIGTERM at `term_by`, SIGKILL at `trusted_by`."""
        if isinstance(spec, Spec):
            if self._base_envs.get(spec.base.name) is not spec.base:
                self._base_envs[spec.base.name] = spec.base
                self._order("base", name=spec.base.name, env=_encoded(spec.base.env))
            self._order("spawn", **_fields(spec, trusted_by, term_by, base=spec.base.name))
        else:
            self._register(spec.pool)
            fields = _fields(spec, trusted_by, term_by, pool=spec.pool.name)
            self._order("call", spec.request.encode(), **fields)

    def guard(self, spec: "GuardSpec", trusted_by: float) -> None:
        """Guard a call that runs in this process.  All guards until the next write are one message."""
        self._guards.append([spec.id, os.getpid(), trusted_by, _wire_text(spec.lane), spec.places])
        self._on_order()

    def release(self, id: str) -> None:
        """A guarded call has ended."""
        self._released.append(id)
        self._on_order()

    def extend(self, id: str, trusted_by: float, term_by: float) -> None:
        """All extensions until the next write are one message."""
        self._terms[id] = trusted_by, term_by
        self._on_order()

    def stop(self, id: str, kill_after_s: float | None) -> None:
        self._order("stop", id=id, kill_after_s=kill_after_s)

    def recall(self, id: str) -> None:
        """Take back the messages of a batch that have not started."""
        self._order("recall", id=id)

    def add_messages(self, id: str, request: str, messages: int) -> None:
        """Pass a request about further messages to the child of a running batch."""
        self._order("more", request.encode(), id=id, messages=messages)

    def start_reaper(self, instance: str) -> None:
        self._order("start-reaper", instance=instance)

    def ping(self) -> None:
        self._order("ping")

    def say_bye(self) -> None:
        """Have the warden end all tasks and then itself."""
        self._order("bye")

    def close_pools(self) -> None:
        """Idle children end.  New ones have the current code and environment."""
        for name in [*self._pools]:
            self._close_pool(name)

    def data_to_send(self) -> bytes:
        """Return the orders since the last call as bytes."""
        lines, self._lines = self._lines, []
        if self._guards:
            lines.insert(0, _line("guard", orders=self._guards))
        if self._released:
            lines.insert(bool(self._guards), _line("release", ids=self._released))
        if self._terms:
            lines.append(_line("extend", terms=self._terms))
        self._guards, self._released, self._terms = [], [], {}
        return b"".join(line + b"\n" for line in lines)

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        *lines, self._received = (self._received + data).split(b"\n")
        return [_event(**message) for line in lines for message in json.loads(line)]

    def _order(self, verb: str, request: bytes | None = None, **fields: object) -> None:
        if request is not None:  # only the child reads it: it goes in a line of its own, before the order
            self._lines.append(REQUEST + request)
        self._lines.append(_line(verb, **fields))
        self._on_order()

    def _register(self, pool: "PoolSpec") -> None:
        if pool.name not in self._pools:
            if len(self._pools) >= POOLS_MAX:
                self._close_pool(next(iter(self._pools)))
            command = Spec(
                id="", words=pool.words, env=pool.env, ttl_s=0.0, work_dir=pool.work_dir, user=pool.user
            )
            order = _fields(command, 0.0, 0.0, base={})
            self._order("register", pool=pool.name, order=order, size_max=pool.size_max, setup=pool.setup)
        self._pools.pop(pool.name, None)
        self._pools[pool.name] = None

    def _close_pool(self, name: str) -> None:
        del self._pools[name]
        self._order("unregister", pool=name)


def end_of_task(spec: "Spec | CallSpec | GuardSpec", gone: Gone, stopped: Outcome | None) -> End:
    """Return how an attempt ended whose task is gone; `stopped` is why this client stopped it, if it did."""
    end = end_of(gone.exit, spec.timeout_s, stopped)
    if gone.exit.cause == "error" and not isinstance(spec, Spec):
        from detent.runners.call.spec import outcome_of

        end = end._replace(outcome=outcome_of(gone.exit.status or 0, gone.exit.error))
    return end._replace(result=gone.result)


def _event(did: str, **fields: Any) -> Event:
    if did == "gone":
        id, result = fields.pop("id"), fields.pop("result")
        tail = base64.b64decode(fields.pop("tail"))
        return Gone(id, ProcessExit(**fields, tail=tail), result)
    return _EVENTS[did](**fields)


def _line(verb: str, **fields: object) -> bytes:
    return json.dumps({"do": verb, **fields}).encode()


def _encoded(value: Any) -> Any:
    """Return the value with all text as the warden gets it."""
    if isinstance(value, str):
        return _wire_text(value)
    if isinstance(value, Mapping):
        return {_wire_text(name): _wire_text(text) for name, text in value.items()}
    return [*map(_wire_text, value)] if isinstance(value, tuple) else value


def _fields(spec: "Spec | CallSpec", trusted_by: float, term_by: float, **others: object) -> dict[str, Any]:
    """Return the fields of a `CommandOrder`, or of a `CallOrder` without its request."""
    fields = spec._asdict() | others
    encoded = {name: _encoded(value) for name, value in fields.items() if name not in ("ttl_s", "request")}
    return {**encoded, "trusted_by": trusted_by, "term_by": term_by}


@functools.lru_cache(maxsize=1024)
def _wire_text(text: str) -> str:
    """Return the text as the operating system would get it from this process, in UTF-8 whatever the locale.
    Cached: most of a command's environment is the same for the next command."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")
