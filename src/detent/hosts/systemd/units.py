"""The units of one schedule: a timer, and a service that starts the trigger.

- systemd ignores a timer whose service is still active.  So the service only starts a transient unit for the
  trigger, and exits; the trigger decides about overlaps.
- The transient unit is `detent-APP.JOB@ID.service`, with the id of the service's invocation.  So
  `journalctl -u 'detent-APP.JOB@*'` shows the output of all triggers of a job.
- The mark is in a section `[X-Detent]`, which systemd ignores.
- The service is sandboxed as far as possible.  The trigger of a request may not write to the system or gain
  privileges; the trigger of a command or call has the rights that the work may need.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from detent.errors import UsageError
from detent.hosts.base import STOP_S, trigger_max_s
from detent.hosts.reconcile import Found, Resource, seal
from detent.manifest.spec import Spec
from detent.model import Request

RUN = "/usr/bin/systemd-run"

SANDBOX = {  # the service only talks to the systemd manager
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
USER_SANDBOX = {  # a user's manager cannot enforce the others
    name: SANDBOX[name]
    for name in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID")
}
REQUEST_SANDBOX = {  # the trigger of a request writes to its store and its locks, and uses the network
    **USER_SANDBOX,
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "full",
}
INVOCATION = "${INVOCATION_ID}"  # systemd sets a new one for each start of the service
_PLAIN = re.compile(r"[A-Za-z0-9_@,./:=+-]+")
_MARK = re.compile(r"\n\[X-Detent\]\nJob=([a-z0-9.-]+)\nRevision=([0-9a-f]{16})\nSeal=([0-9a-f]{12})\n")


class TriggerCommand(NamedTuple):
    """How a unit runs the trigger."""

    words: Sequence[str]
    is_user: bool  # under a user's manager
    run_as: str


def make_timer(name: str, spec: Spec, index: int, events: Sequence[str]) -> Resource:
    time = spec.times[index]
    text = time.text.replace("%", "%%")  # a percent sign starts a specifier
    lines = [
        "[Unit]",
        f"Description=Timer of the detent job {spec.name} at {text} {time.timezone}",
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
    """Return the arguments of systemd-run, which expands dollars in the command a second time."""
    properties = {
        "Type": "exec",
        "SyslogIdentifier": f"detent-{spec.name}",
        "SuccessExitStatus": "4 75",
        "KillMode": "mixed",
        "TimeoutStopSec": f"{STOP_S}",
        **({"RuntimeMaxSec": f"{trigger_max_s(spec.job.policy)}"} if spec.job.policy.timeout_s else {}),
        **_sandbox(spec, trigger),
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


def _sandbox(spec: Spec, trigger: TriggerCommand) -> dict[str, str]:
    if not isinstance(spec.job.work, Request):
        return {"Delegate": "yes"}  # the work runs in its own cgroup, and is killed with it
    return {} if trigger.is_user else REQUEST_SANDBOX


def quote_word(word: str) -> str:
    """Quote one word of a command line, so that systemd expands nothing in it."""
    if not word.isprintable():
        raise UsageError("a unit file allows no control characters")
    plain = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _marked(name: str, spec: Spec, lines: Iterable[str], kind: str) -> Resource:
    body = "\n".join(lines) + "\n"
    sealed = seal(body, name, spec.revision)
    mark = f"\n[X-Detent]\nJob={spec.name}\nRevision={spec.revision}\nSeal={sealed}\n"
    return Resource(name, spec.name, spec.revision, body + mark, kind)


def read_unit(name: str, content: str, notes: Sequence[str] = ()) -> Found:
    """Read an existing unit; `notes` are further differences, such as that it is not enabled."""
    mark = _MARK.search(content)
    kind = name.rpartition(".")[2]
    shown = content + "".join(f"# {note}\n" for note in notes)
    if mark is None:
        return Found(name, shown, kind=kind)
    body = content[: mark.start()] + content[mark.end() :]
    intact = not notes and seal(body, name, mark[2]) == mark[3]
    return Found(name, shown, mark[1], mark[2], intact, kind=kind)
