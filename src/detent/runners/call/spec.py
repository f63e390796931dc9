"""What a call is started with, in a child of the warden or in the node itself.  Pure.

- Calls with the same directory, environment and user share a pool of children.  The environment of a pool
  is that of a command, without the variables of one fire.
- The variables of the fire are part of the call: the function finds the `DETENT_*` variables of a command
  in its environment, and the same as a `detent.Fire` if it has a parameter for it.
"""

import json
import sys
from collections.abc import Mapping
from typing import NamedTuple

from detent.model import Call, Cause, Claim, Outcome
from detent.runners.call.child_main import PROTOCOL
from detent.runners.call.fire import Fire, fire_of
from detent.runners.call.function import BACKEND_DOWN, RESULT_NOT_KEPT
from detent.runners.call.store import NodeStore
from detent.runners.command import attempt_id, fire_env

TAGS = ("DETENT_RUN_ID", "DETENT_ATTEMPT")  # they identify the processes of a call
SUCCEEDED = Outcome("succeeded")
PROGRAM = f"{__file__.rpartition('/')[0]}/child_main.py"  # of a warm child


class PoolSpec(NamedTuple):
    """What the children of a pool are started with."""

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: str = ""
    user: str = ""
    size_max: int = 1000  # children
    setup: str = ""  # the first line that each child gets


class CallSpec(NamedTuple):
    """A call for a child, for one claim."""

    id: str
    pool: PoolSpec
    request: str  # as the child reads it
    tags: tuple[str, ...]
    ttl_s: float
    timeout_s: float = 0.0  # 0: none
    kill_after_s: float = 10.0
    output_path: str = ""  # "": only the tail is kept
    lane: str = ""  # the path of its lane's locks on this host; "": it has no lane
    places: int = 1
    messages: int = 0  # of a batch; 0: it is not a batch


class GuardSpec(NamedTuple):
    """A call that runs in the node itself, as the warden guards it, for one claim."""

    id: str
    ttl_s: float
    lane: str = ""
    places: int = 1
    timeout_s: float = 0.0
    kill_after_s: float = 0.0  # it cannot be asked to end


def pool_spec(call: Call, env: Mapping[str, str], instance: str) -> PoolSpec:
    """`env` is the environment of a command of this job, without the variables of the fire."""
    words, steady = (sys.executable, "-P", PROGRAM, PROTOCOL), {**env, "DETENT_NODE": instance}
    identity = json.dumps([words, sorted(steady.items()), call.work_dir, call.user])
    from hashlib import sha256

    name = sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return PoolSpec(name, words, steady, call.work_dir, call.user)


def setup_of(store: NodeStore, user: str) -> str:
    """Return the first line for a child, with its node's store; "": the child finds the same by itself."""
    if user and store.is_declared:
        return ""
    return json.dumps({"store": store.withheld() if user else store})


def call_spec(claim: Claim, call: Call, pool: PoolSpec, trace: str = "") -> CallSpec:
    id, variables = attempt_id(claim), fire_env(claim)
    about = {
        "id": id,
        "function": call.function,
        "env": variables,
        "previous_success": previous_success(claim),
        "keeps": keeps_result(claim),
        "trace": trace,
    }
    return CallSpec(
        id=id,
        pool=pool,
        request=f'{json.dumps(about)[:-1]}, "args": {call.args}}}',
        tags=tuple(f"{name}={variables[name]}" for name in TAGS),
        ttl_s=claim.ttl_s,
        timeout_s=claim.fire.policy.timeout_s,
        kill_after_s=call.kill_after_s,
        places=claim.fire.policy.max_running,
    )


def guard_spec(claim: Claim, lane: str) -> GuardSpec:
    return GuardSpec(attempt_id(claim), claim.ttl_s, lane, claim.fire.policy.max_running)


def claimed_fire(claim: Claim) -> Fire:
    """Return the fire as its function gets it."""
    return fire_of(fire_env(claim), previous_success(claim))


def previous_success(claim: Claim) -> float | None:
    """Return when the job last succeeded, in Unix seconds; None: unknown."""
    return claim.previous_success_at.timestamp() if claim.previous_success_at else None


def keeps_result(claim: Claim) -> bool:
    """Whether the caller wants the result: then an attempt fails if it cannot be kept."""
    return claim.fire.origin == "push" and not claim.fire.policy.drop_result


def outcome_of(status: int, error: str) -> Outcome:
    """Return the outcome of a call with this exit status and error."""
    if error:
        cause: Cause = "backend" if status == BACKEND_DOWN else "work"
        return Outcome("rejected" if status == RESULT_NOT_KEPT else "failed", error, cause)
    return SUCCEEDED if status == 0 else Outcome("failed", f"exit {status}")
