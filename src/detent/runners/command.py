"""What a command is started with, and what its exit means.  Pure.

- Its environment is that of the node, without the node's own `DETENT_*` variables and without variables that
  hold secrets.  The variables of the job override it, and the `DETENT_*` variables of the fire override both.
- A hook gets the key and the due instant of the fire that it is called for, and how that fire ended.
- Exit status 0 is a success, any other a failed attempt.  If we ended the command, our reason is the outcome,
  whatever its exit status is.
"""

import json
import signal
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from detent.model import Claim, Command, End, Outcome
from detent.rules.outcomes import CLAIM_EXPIRED, timed_out
from detent.rules.planning import rfc3339

PREFIX = "DETENT_"
VARIABLE_MAX = 32 * 1024  # bytes: the kernel allows 128 KiB in one string
ACCOUNT = ("HOME", "USER", "LOGNAME")  # not passed to a command that runs as another user

Cause = Literal["", "timeout", "stop", "trust", "error"]


class BaseEnv(NamedTuple):
    """An environment that many commands share: the warden gets it once, with a name."""

    name: str = ""
    env: Mapping[str, str] = {}


NO_BASE_ENV = BaseEnv()
NO_COMMAND = Command(words=())


class Spec(NamedTuple):
    """A command to start for one claim."""

    id: str
    words: tuple[str, ...]
    env: Mapping[str, str]  # overrides `base`
    ttl_s: float
    work_dir: str = ""
    user: str = ""
    timeout_s: float = 0.0  # 0: none
    kill_after_s: float = 10.0
    children: Literal["end", "leave"] = "end"
    output_path: str = ""  # "": only the tail is kept
    lane: str = ""  # the path of its lane's locks on this host; "": it has no lane
    places: int = 1  # of the lane
    base: BaseEnv = NO_BASE_ENV


class ProcessExit(NamedTuple):
    """How the processes of a command, or of a call, ended."""

    status: int | None  # negative: a signal
    cause: Cause = (
        ""  # why we ended it; "": it ended by itself; "error": it did not start, or its call failed
    )
    error: str = ""
    took_s: float = 0.0
    tail: bytes = b""


def attempt_id(claim: Claim) -> str:
    return f"{claim.fire.run_id}.{claim.attempt}.{claim.fence}"


def spec_of(claim: Claim, command: Command, env: Mapping[str, str], output: str = "", lane: str = "") -> Spec:
    """Return the command of a claim, with the paths of its output and of its lane's locks.  `env` is the
    result of `fire_env`."""
    fire = claim.fire
    return Spec(
        id=attempt_id(claim),
        words=command.words,
        env=env,
        ttl_s=claim.ttl_s,
        work_dir=command.work_dir,
        user=command.user,
        timeout_s=fire.policy.timeout_s,
        kill_after_s=command.kill_after_s,
        children=command.children,
        output_path=output,
        lane=lane,
        places=fire.policy.max_running,
    )


def inherited_env(base: Mapping[str, str], secrets: Collection[str], *, is_other: bool) -> dict[str, str]:
    """Return what commands inherit from the node; `is_other`: those that run as another user."""
    hidden = set(secrets) | set(ACCOUNT if is_other else ())
    return {name: value for name, value in base.items() if name not in hidden and not name.startswith(PREFIX)}


def fire_env(claim: Claim, command: Command = NO_COMMAND) -> dict[str, str]:
    """Return the variables of the job and of the fire; without a command, those of the fire alone."""
    env = dict(command.env) | _about_fire(claim)
    if claim.fire.origin == "hook":
        env |= _about_end(json.loads(claim.fire.payload or "{}"))
    if command.children == "leave":
        env["DETENT_CHILDREN"] = "leave"  # a cleanup after a dead node spares them
    return env


def _about_fire(claim: Claim) -> dict[str, str]:
    app, _, job = claim.fire.job.partition(".")
    return {
        "DETENT_APP": app,
        "DETENT_JOB": job.partition("/")[0],
        "DETENT_FIRE": claim.fire.key,
        "DETENT_RUN_ID": claim.fire.run_id,
        "DETENT_DUE": rfc3339(claim.fire.due_at),
        "DETENT_ATTEMPT": str(claim.attempt),
        "DETENT_FENCE": str(claim.fence),
        "DETENT_NODE": claim.node,
    }


def _about_end(payload: Mapping[str, object]) -> dict[str, str]:
    """Return the variables of a hook about the fire that it is called for."""
    fields = {
        "DETENT_FIRE": "fire",
        "DETENT_DUE": "due",
        "DETENT_OUTCOME": "outcome",
        "DETENT_REASON": "reason",
        "DETENT_CAUSE": "cause",
        "DETENT_EXIT_CODE": "exit_code",
        "DETENT_DURATION_MS": "duration_ms",
        "DETENT_OUTPUT_TAIL": "output_tail",
    }
    return {name: _passable(payload.get(field)) for name, field in fields.items() if field in payload}


def _passable(value: object) -> str:
    """Return the value as a variable can hold it: without NUL, and only the end of a long text."""
    text = "" if value is None else str(value).replace("\0", "")
    return text.encode("utf-8", "surrogateescape")[-VARIABLE_MAX:].decode("utf-8", "ignore")


def end_of(gone: ProcessExit, timeout_s: float, stopped: Outcome | None) -> End:
    """Return how an attempt ended whose processes are gone; `stopped` is the outcome of a stop, if there
    was one."""
    match gone.cause:
        case "timeout":
            outcome = timed_out(timeout_s)
        case "trust":
            outcome = CLAIM_EXPIRED
        case "error":
            outcome = Outcome("failed", gone.error)
        case "stop" if stopped:
            outcome = stopped
        case _:
            outcome = _by_itself(gone.status)
    return End(outcome, status=gone.status, took_s=gone.took_s, tail=gone.tail)


def _by_itself(status: int | None) -> Outcome:
    if status == 0:
        return Outcome("succeeded")
    if status is None or status > 0:
        return Outcome("failed", f"exit {status}")
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-status}"
    return Outcome("failed", f"killed by {name}")
