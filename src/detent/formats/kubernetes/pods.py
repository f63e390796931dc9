"""Converts the pod of a Kubernetes CronJob to a command.

- A job runs on the node's machine: the image, volumes, accounts and limits are reported.
- `command` and `args` become a list of words, with `$(NAME)` expanded from `env`.
- Values that only the cluster knows, such as secrets, must be in the node's environment.  A command that
  uses one runs in the shell, so that the value is not in the manifest.
- If a part of the work is missing (the image's entry point, further containers), the job is disabled.
"""

import re
import shlex
from collections.abc import Callable
from typing import Any

from detent.formats.base import Expanded, expand_references
from detent.manifest.problems import escape_dollars
from detent.text import listed, plural, show

Warn = Callable[[str, str], None]  # takes a path and a message

DISABLED = "; the job is disabled until then"
ONE_COMMAND = "a job has one command; combine them in a script"
BEFORE = "do its work in a script before the command"
PLACE = "choose the nodes that run it with `queue`"
RIGHTS = "set `user`; the job has the other rights of the node"
POD_ADVICE = {
    **dict.fromkeys(("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"), PLACE),
    **dict.fromkeys(("nodeName", "runtimeClassName", "priorityClassName", "priority"), PLACE),
    "volumes": "the command uses the files of the node's machine; copy them there",
    "serviceAccountName": "give the command its credentials on the node's machine",
    "serviceAccount": "give the command its credentials on the node's machine",
    "imagePullSecrets": "no image is pulled",
    "securityContext": RIGHTS,
    "hostAliases": "the command uses the host names of the node's machine",
    "dnsConfig": "the command uses the host names of the node's machine",
}
CONTAINER_ADVICE = {
    "resources": "the command has the limits of the node; use nice, ulimit or systemd-run",
    "volumeMounts": "the command uses the files of the node's machine; use their paths there",
    "securityContext": RIGHTS,
    "ports": "the command listens on the node's machine",
    "lifecycle": "do it in the command",
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), "use `policy.timeout_seconds`"),
}
DEFAULTS = {  # values that the cluster adds to an exported object
    "dnsPolicy": ("ClusterFirst", "Default"),
    "schedulerName": ("default-scheduler",),
    "restartPolicy": ("Never", "OnFailure"),
    "enableServiceLinks": (True, False),
    "automountServiceAccountToken": (True, False),
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "serviceAccountName": ("default",),
    "serviceAccount": ("default",),
}
READ = ("name", "image", "command", "args", "env", "envFrom", "workingDir")
READ_OF_POD = ("containers", "initContainers", "activeDeadlineSeconds", "terminationGracePeriodSeconds")

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_VARIABLE = re.compile(r"(?!DETENT_)[A-Za-z_][A-Za-z0-9_]*")


def pod_fields(pod: dict[str, Any], path: str, warn: Warn) -> dict[str, Any]:
    first, *others = pod["containers"]
    fields = _Container(first, f"{path}/containers/0", warn).fields()
    lost = [
        *(("containers", i, other, ONE_COMMAND) for i, other in enumerate(others, 1)),
        *(("initContainers", i, other, BEFORE) for i, other in enumerate(pod.get("initContainers") or ())),
    ]
    for kind, i, other, advice in lost:
        warn(f"{path}/{kind}/{i}", f"{_named(other)}: {advice}{DISABLED}")
        fields["enabled"] = False
    grace = pod.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace != 30:  # 30 is the default of the cluster
        fields["kill_after_seconds"] = min(max(grace, 0), 3600)
    warn_unread(pod, path, READ_OF_POD, POD_ADVICE, warn)
    return fields


def warn_unread(
    given: dict[str, Any], path: str, read: tuple[str, ...], advice: dict[str, str], warn: Warn
) -> None:
    """Warn about each field that is not converted, unless it has a default value."""
    for key, value in given.items():
        says_nothing = value is False or value in (None, "", {}, []) or value in DEFAULTS.get(key, ())
        if key not in read and not says_nothing:
            warn(f"{path}/{key}", advice.get(key, "it has no equivalent; check whether the job needs it"))


def _named(container: Any) -> str:
    name = container.get("name") if isinstance(container, dict) else None
    return f"the container {show(name)}" if name else "a container without a name"


class _Container:
    def __init__(self, container: dict[str, Any], path: str, warn: Warn) -> None:
        self._container = container
        self._path = path
        self._warn = warn
        self._variables: dict[str, Expanded] = {}
        self._is_open = bool(container.get("envFrom"))  # it may define any variable

    def fields(self) -> dict[str, Any]:
        self._read_variables()
        fields = self._command()
        known = {name: filled.plain for name, filled in self._variables.items() if filled.plain is not None}
        if known:
            fields["env"] = {name: escape_dollars(value) for name, value in known.items()}
        if work_dir := self._container.get("workingDir"):
            fields["work_dir"] = escape_dollars(str(work_dir))
        if image := self._container.get("image"):
            message = "no container is started; install the program on the nodes, or use `docker run --rm …`"
            self._warn(f"{self._path}/image", f"{show(image)}: {message}")
        warn_unread(self._container, self._path, READ, CONTAINER_ADVICE, self._warn)
        return fields

    def _read_variables(self) -> None:
        for i, source in enumerate(self._container.get("envFrom") or ()):
            message = f"{_reference(source)}: set its variables in the node's environment or in `env`"
            self._warn(f"{self._path}/envFrom/{i}", message)
        for i, variable in enumerate(self._container.get("env") or ()):
            if isinstance(variable, dict):
                self._read_variable(variable, f"{self._path}/env/{i}")

    def _read_variable(self, variable: dict[str, Any], path: str) -> None:
        name = str(variable.get("name", ""))
        if not _VARIABLE.fullmatch(name):
            self._warn(path, f"{show(name)} is not a valid name of a variable; it is ignored")
        elif source := variable.get("valueFrom"):
            self._variables[name] = Expanded(None, "")
            self._warn(path, f"{name} from {_reference(source)}: set {name} in the node's environment")
        else:
            value = variable.get("value")
            self._variables[name] = self._filled("" if value is None else _text(value))

    def _filled(self, text: str) -> Expanded:
        return expand_references(text, _REFERENCE, self._value)

    def _value(self, match: re.Match[str]) -> str | None:
        """Return the value of a reference, or None if it is only known at run time."""
        if match[1] is None:
            return "$"
        if match[1] in self._variables:
            return self._variables[match[1]].plain
        is_open = self._is_open and _VARIABLE.fullmatch(match[1])
        return None if is_open else match[0]  # Kubernetes does not expand an unknown name

    def _command(self) -> dict[str, Any]:
        command, args = self._container.get("command"), self._container.get("args")
        if not command:
            image = show(self._container.get("image"))
            lost = f" ({plural(len(args), 'argument')}: {show(' '.join(map(_text, args)))})" if args else ""
            message = f"the entry point of {image}{lost} is unknown here; write the command{DISABLED}"
            self._warn(f"{self._path}/command", message)
            placeholder = f"echo {shlex.quote(f'write here what {image} runs')} >&2; exit 1"
            return {"command": escape_dollars(placeholder), "enabled": False}
        words = [self._filled(_text(word)) for word in (*command, *(args or ()))]
        plain = [word.plain for word in words if word.plain is not None]
        # Variables whose values use others that are only known at run time.
        exports = [
            f"export {name}={filled.shell}; "
            for name, filled in self._variables.items()
            if filled.plain is None and filled.shell
        ]
        if len(plain) == len(words) and not exports:
            return {"command": [escape_dollars(word) for word in plain]}
        return {
            "command": escape_dollars("".join(exports) + "exec " + " ".join(word.shell for word in words))
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else show(value)


def _reference(source: Any) -> str:
    """Describe a source: `secretKeyRef db-password key password`."""
    if not isinstance(source, dict):
        return show(source)
    values = {kind: what.values() if isinstance(what, dict) else [what] for kind, what in source.items()}
    kinds = [
        " ".join([kind, *(one for one in some if isinstance(one, str))]) for kind, some in values.items()
    ]
    return listed(kinds, "and")
