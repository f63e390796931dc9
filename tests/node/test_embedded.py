"""Calls in an embedded node, which has no warden."""

from __future__ import annotations

import asyncio
from pathlib import Path

from detent.clock import boottime, now
from detent.model import Call, Claim, End, Fire
from detent.node.embedded import NoWarden
from detent.runners.call.spec import guard_spec
from detent.warden.program import host_locks
from detent.worker.in_process import GuardedCall, InProcessCalls

TTL_S, PATIENCE_S = 30.0, 60.0
CALLED: list[str] = []


def note(name: str) -> None:
    CALLED.append(name)


def start(calls: InProcessCalls, name: str, lane: str, trusted_s: float) -> GuardedCall:
    fire = Fire(name, "t.f", now(), run_id=name, lane=name)
    claim = Claim(fire, "n.1", 1, attempt=1, ttl_s=TTL_S, expires_at=now())
    call = Call(f"{__name__}:note", f'["{name}"]', "thread", kill_after_s=0.5)
    return calls.start(call, claim, guard_spec(claim, lane), boottime() + trusted_s)


async def ended(one: GuardedCall) -> str:
    """Return the kind of its outcome, or "" if it was not started."""
    gone = asyncio.Event()
    one.gone.add_done_callback(lambda _: gone.set())
    await asyncio.wait_for(gone.wait(), PATIENCE_S)
    went = one.gone.result()
    return went.outcome.kind if isinstance(went, End) else ""


def test_a_call_with_an_untrusted_claim_does_not_start_and_frees_its_lane(tmp_path: Path) -> None:
    """The process may have been suspended between the claim and the start."""

    async def scene() -> tuple[str, str]:
        calls = InProcessCalls(NoWarden("n.1"))
        trusted = start(calls, "trusted", str(tmp_path / "trusted"), TTL_S)
        trusted.on_guarded = lambda: None  # watched before the other call, and started after it
        late = start(calls, "late", str(tmp_path / "late"), -1.0)
        went = await ended(late)
        assert trusted.begin()
        return went, await ended(trusted)

    assert asyncio.run(scene()) == ("", "succeeded")
    assert CALLED == ["trusted"]
    assert host_locks.holders(str(tmp_path / "late"), 1) == []
