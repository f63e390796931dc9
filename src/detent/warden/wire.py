"""What the warden is asked to start, in the words of its wire: `program/loop.py` has them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from detent.runners.command import BaseEnv, Spec
from detent.warden.program.inbox import REQUEST
from detent.warden.program.task import CallOrder

if TYPE_CHECKING:
    from detent.runners.call.spec import CallSpec, GuardSpec, PoolSpec

Message = dict[str, Any]


class Guarded(Protocol):
    """What the node is to be guarded for."""

    @property
    def spec(self) -> Spec | CallSpec | GuardSpec: ...

    @property
    def trusted_by(self) -> float: ...


def written(message: Message) -> bytes:
    """As the warden reads it.  What it only passes on to a child has a line of its own, which comes first."""
    request = message.get("request")
    if request is None:
        return json.dumps(message).encode()
    rest = {name: value for name, value in message.items() if name != "request"}
    return b"%b%b\n%b" % (REQUEST, request, json.dumps(rest).encode())


def order_of(spec: Spec | CallSpec, trusted_by: float, term_by: float) -> Message:
    if isinstance(spec, Spec):
        return {"do": "spawn", **_command(spec, trusted_by, term_by), "base": spec.base.name}
    return {"do": "call", **_call(spec, trusted_by, term_by)._asdict()}


def guard_all(works: Iterable[Guarded]) -> Message:
    """The fields of `task.GuardOrder`, of each."""
    pid = os.getpid()
    orders = [
        [
            one.spec.id,
            pid,
            one.trusted_by,
            lane if (lane := one.spec.lane).isascii() else _wire_text(lane),
            one.spec.places,
        ]
        for one in works
    ]
    return {"do": "guard", "orders": orders}


def base(known: BaseEnv) -> Message:
    """An environment for commands to come."""
    return {"do": "base", "name": known.name, "env": _env(known.env)}


def register(pool: PoolSpec) -> Message:
    """What its children are started with."""
    spec = Spec(
        id="",
        words=pool.words,
        env=pool.env,
        ttl_s=0.0,
        work_dir=pool.work_dir,
        user=pool.user,
    )
    order = _command(spec, 0.0, 0.0)
    about = {"pool": pool.name, "most": pool.most, "setup": pool.setup}
    return {"do": "register", "order": order, **about}


def _command(spec: Spec, trusted_by: float, term_by: float) -> Message:
    """The fields of `spawn.Order`."""
    return {
        "id": spec.id,
        "words": [*map(_wire_text, spec.words)],
        "env": _env(spec.env),
        "cwd": _wire_text(spec.work_dir),
        "user": spec.user,
        "trusted_by": trusted_by,
        "term_by": term_by,
        "timeout_s": spec.timeout_s,
        "kill_after_s": spec.kill_after_s,
        "children": spec.children,
        "output_path": _wire_text(spec.output_path),
        "lane": _wire_text(spec.lane),
        "places": spec.places,
    }


def _call(spec: CallSpec, trusted_by: float, term_by: float) -> CallOrder:
    return CallOrder(
        id=spec.id,
        pool=spec.pool.name,
        request=spec.request.encode(),
        tags=[*spec.tags],
        trusted_by=trusted_by,
        term_by=term_by,
        timeout_s=spec.timeout_s,
        kill_after_s=spec.kill_after_s,
        output_path=_wire_text(spec.output_path),
        lane=_wire_text(spec.lane),
        places=spec.places,
        messages=spec.messages,
    )


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {_wire_text(name): _wire_text(value) for name, value in env.items()}


@functools.lru_cache(maxsize=1024)
def _wire_text(text: str) -> str:
    """As the operating system gets it from this process, in UTF-8 whatever our locale is.  Remembered,
    as most of a command's environment is the same from one to the next."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")
