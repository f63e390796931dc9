"""The units of one schedule: a timer that rings, and a service that starts the trigger.

- A timer that elapses while its service is active does nothing.  So the service only asks the manager for
  a transient unit, in which the trigger runs, and is over at once; the trigger decides what overlaps.
- The transient unit is `detent-APP.JOB@ID.service`, so that `journalctl -u 'detent-APP.JOB@*'` finds all that
  the triggers of a job and their work wrote.  The id is that of the service's invocation: no two are alike.
- The mark stands in a section of its own, `[X-Detent]`, which systemd passes over.
- The service is shut in as far as systemd can.  A request's trigger may not write to the system nor gain
  rights; a command's or a call's has the rights that the work may need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from detent.errors import UsageError
from detent.hosts.base import STOP_S, trigger_max_s
from detent.hosts.reconcile import Found, Resource, seal
from detent.manifest.spec import Spec
from detent.model import Request

RUN = "/usr/bin/systemd-run"

SANDBOX = {  # the service that only asks the manager for something
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "PrivateDevices": "yes",
    "PrivateNetwork": "yes",
    "PrivateTmp": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
}
USER_SANDBOX = {  # a user's manager cannot make the others true
    name: SANDBOX[name]
    for name in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID")
}
REQUEST_SANDBOX = {  # the trigger of a request writes to its store and its locks, and uses the network
    "NoNewPrivileges": "yes",
    "LockPersonality": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "full",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
}
INVOCATION = "${INVOCATION_ID}"  # systemd fills it in: another one for each start of the service
_PLAIN = re.compile(r"[A-Za-z0-9_@,./:=+-]+")
_MARK = re.compile(r"\n\[X-Detent\]\nJob=([a-z0-9.-]+)\nRevision=([0-9a-f]{16})\nSeal=([0-9a-f]{12})\n")


class TriggerCommand(NamedTuple):
    """What a unit is told, beyond the job."""

    words: Sequence[str]  # of the trigger
    is_user: bool  # of a user's manager
    run_as: str


def make_timer(name: str, spec: Spec, index: int, events: Sequence[str]) -> Resource:
    time = spec.times[index]
    lines = [
        "[Unit]",
        f"Description=Rings for the detent job {spec.name} at {_text(time.text)} {time.timezone}",
        "",
        "[Timer]",
        *(f"OnCalendar={event}" for event in events),
        "AccuracySec=1s",
        f"Persistent={'false' if spec.job.policy.catch_up == 'skip' else 'true'}",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return _marked(f"{name}.timer", spec, lines, "timer")


def make_service(name: str, spec: Spec, trigger: TriggerCommand) -> Resource:
    sandbox = USER_SANDBOX if trigger.is_user else SANDBOX
    lines = [
        "[Unit]",
        f"Description=Starts the trigger of the detent job {spec.name}",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={RUN} --unit=detent-{spec.name}@{INVOCATION}.service"
        f" {' '.join(quote_word(word) for word in _systemd_run_words(spec, trigger))}",
        *(f"{field}={value}" for field, value in sandbox.items()),
    ]
    return _marked(f"{name}.service", spec, lines, "service")


def _systemd_run_words(spec: Spec, trigger: TriggerCommand) -> list[str]:
    """The words after the transient unit's name; in its command a dollar is expanded once more."""
    properties = {
        "Type": "exec",
        "SyslogIdentifier": f"detent-{spec.name}",
        "SuccessExitStatus": "4 75",
        "KillMode": "mixed",
        "TimeoutStopSec": f"{STOP_S}",
        **({"RuntimeMaxSec": f"{trigger_max_s(spec.job.policy)}"} if spec.job.policy.timeout_s else {}),
        **_confined(spec, trigger),
    }
    return [
        *(["--user"] if trigger.is_user else []),
        *(["--uid", trigger.run_as] if trigger.run_as else []),
        "--no-block",
        "--collect",
        "--quiet",
        f"--description=detent trigger {spec.name}",
        *(f"--property={field}={value}" for field, value in properties.items()),
        "--",
        *(word.replace("$", "$$") for word in trigger.words),
    ]


def _confined(spec: Spec, trigger: TriggerCommand) -> dict[str, str]:
    if not isinstance(spec.job.work, Request):
        return {"Delegate": "yes"}  # the work gets a cgroup of its own, and is ended with it
    return {} if trigger.is_user else REQUEST_SANDBOX


def quote_word(word: str) -> str:
    """A word of a command line: nothing in it is expanded, and it stays one word."""
    if not word.isprintable():
        raise UsageError("no control characters can stand in a unit")
    plain = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(text: str) -> str:
    """A description, without what systemd would fill in."""
    return text.replace("%", "%%")


# The mark.


def _marked(name: str, spec: Spec, lines: Iterable[str], kind: str) -> Resource:
    body = "\n".join(lines) + "\n"
    sealed = seal(body, name, spec.revision)
    mark = f"\n[X-Detent]\nJob={spec.name}\nRevision={spec.revision}\nSeal={sealed}\n"
    return Resource(name, spec.name, spec.revision, body + mark, kind)


def read_unit(name: str, content: str, notes: Sequence[str] = ()) -> Found:
    """A unit as it is there; `notes` are what else is wrong with it, such as that it is not enabled."""
    mark = _MARK.search(content)
    kind = name.rpartition(".")[2]
    told = content + "".join(f"# {note}\n" for note in notes)
    if mark is None:
        return Found(name, told, kind=kind)
    body = content[: mark.start()] + content[mark.end() :]
    intact = not notes and seal(body, name, mark[2]) == mark[3]
    return Found(name, told, mark[1], mark[2], intact, kind=kind)
