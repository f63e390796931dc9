"""The pod of a Kubernetes CronJob as a command of ours.

- A job runs on the node's own machine: the image, its volumes, its accounts and its limits are told.
- `command` and `args` become a list of words; `$(NAME)` is filled in from `env`, `$$` is a dollar.
- What only the cluster knows (a secret, a field of the pod) must be in the node's environment; a command
  that mentions it goes through the shell, so that the value never stands in the manifest.
- Where a part of the work is missing (the image's own entry point, further containers), the job is there,
  but disabled.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from detent.manifest.problems import escape_dollars
from detent.text import listed, plural, show

Warn = Callable[[str, str], None]  # a path and a message

DISABLED = "; the job is disabled until then"
PLACE = "choose the nodes that run it with `queue`"
RIGHTS = "set `user`; further rights are those of the node"
POD_ADVICE = {
    **dict.fromkeys(("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"), PLACE),
    **dict.fromkeys(("nodeName", "runtimeClassName", "priorityClassName", "priority"), PLACE),
    "volumes": "the command sees the files of the node's machine; put them there",
    "serviceAccountName": "give the command its credentials on the node's machine",
    "serviceAccount": "give the command its credentials on the node's machine",
    "imagePullSecrets": "no image is pulled",
    "securityContext": RIGHTS,
    "hostAliases": "the command has the names of the node's machine",
    "dnsConfig": "the command has the names of the node's machine",
}
CONTAINER_ADVICE = {
    "resources": "the command has the limits of the node; use nice, ulimit or systemd-run",
    "volumeMounts": "the command sees the files of the node's machine; use their paths there",
    "securityContext": RIGHTS,
    "ports": "the command listens on the node's machine",
    "lifecycle": "put it into the command",
    **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), "use `policy.timeout_seconds`"),
}
PLAIN = {  # what an exported object says although nobody chose it
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


class Expanded(NamedTuple):
    """A text as it is (None: only known when it runs), and for the shell."""

    plain: str | None
    shell: str


def pod_fields(pod: dict[str, Any], path: str, tell: Warn) -> dict[str, Any]:
    """The fields of a job that a pod gives."""
    first, *others = pod["containers"]
    fields = _Container(first, f"{path}/containers/0", tell).fields()
    for i, other in enumerate(others, 1):
        tell(
            f"{path}/containers/{i}",
            f"{_named(other)}: a job has one command; join them in a script{DISABLED}",
        )
        fields["enabled"] = False
    for i, other in enumerate(pod.get("initContainers") or ()):
        told = f"{_named(other)}: run what it does before the command, in a script{DISABLED}"
        tell(f"{path}/initContainers/{i}", told)
        fields["enabled"] = False
    grace = pod.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace != 30:  # what the cluster fills in says nothing
        fields["kill_after_seconds"] = min(max(grace, 0), 3600)
    warn_unread(pod, READ_OF_POD, POD_ADVICE, lambda key, told: tell(f"{path}/{key}", told))
    return fields


def warn_unread(given: dict[str, Any], read: tuple[str, ...], advice: dict[str, str], tell: Warn) -> None:
    """Warn of each field that is not read, unless it says nothing."""
    for key, value in given.items():
        says_nothing = value is False or value in (None, "", {}, []) or value in PLAIN.get(key, ())
        if key not in read and not says_nothing:
            tell(key, advice.get(key, "it has no equivalent; look whether the job needs it"))


def _named(container: Any) -> str:
    name = container.get("name") if isinstance(container, dict) else None
    return f"the container {show(name)}" if name else "a container without a name"


class _Container:
    """One container on its way to a command."""

    def __init__(self, container: dict[str, Any], path: str, tell: Warn) -> None:
        self._container = container
        self._path = path
        self._tell = tell
        self._variables: dict[str, Expanded] = {}
        self._is_open = bool(container.get("envFrom"))  # any name may come from there

    def fields(self) -> dict[str, Any]:
        self._read_variables()
        fields = self._command()
        known = {name: filled.plain for name, filled in self._variables.items() if filled.plain is not None}
        if known:
            fields["env"] = {name: escape_dollars(value) for name, value in known.items()}
        if work_dir := self._container.get("workingDir"):
            fields["work_dir"] = escape_dollars(str(work_dir))
        if image := self._container.get("image"):
            told = "no container is started; install the program on the nodes, or write `docker run --rm …`"
            self._tell(f"{self._path}/image", f"{show(image)}: {told}")
        warn_unread(
            self._container, READ, CONTAINER_ADVICE, lambda key, told: self._tell(f"{self._path}/{key}", told)
        )
        return fields

    # Variables.

    def _read_variables(self) -> None:
        for i, source in enumerate(self._container.get("envFrom") or ()):
            told = f"{_reference(source)}: put its variables into the node's environment or `env`"
            self._tell(f"{self._path}/envFrom/{i}", told)
        for i, variable in enumerate(self._container.get("env") or ()):
            if isinstance(variable, dict):
                self._read_variable(variable, f"{self._path}/env/{i}")

    def _read_variable(self, variable: dict[str, Any], path: str) -> None:
        name = str(variable.get("name", ""))
        if not _VARIABLE.fullmatch(name):
            self._tell(path, f"{show(name)} cannot be the name of a job's variable; it is left out")
        elif source := variable.get("valueFrom"):
            self._variables[name] = Expanded(None, "")
            self._tell(path, f"{name} from {_reference(source)}: set {name} in the node's environment")
        else:
            value = variable.get("value")
            self._variables[name] = self._filled("" if value is None else _text(value))

    def _filled(self, text: str) -> Expanded:
        plain, shell, at, is_known = "", "", 0, True
        for match in _REFERENCE.finditer(text):
            before = text[at : match.start()]
            value = self._value(match)
            plain += before + (value or "")
            shell += _quoted(before) + (f'"${match[1]}"' if value is None else _quoted(value))
            is_known = is_known and value is not None
            at = match.end()
        plain, shell = plain + text[at:], shell + _quoted(text[at:])
        return Expanded(plain, shlex.quote(plain)) if is_known else Expanded(None, shell)

    def _value(self, match: re.Match[str]) -> str | None:
        """What a reference stands for; None: only known when it runs."""
        if match[1] is None:
            return "$"
        if match[1] in self._variables:
            return self._variables[match[1]].plain
        is_open = self._is_open and _VARIABLE.fullmatch(match[1])
        return None if is_open else match[0]  # Kubernetes leaves what it does not know

    # Words.

    def _command(self) -> dict[str, Any]:
        command, args = self._container.get("command"), self._container.get("args")
        if not command:
            image = show(self._container.get("image"))
            lost = (
                f" ({plural(len(args), 'argument')} to it: {show(' '.join(map(_text, args)))})"
                if args
                else ""
            )
            told = (
                f"the image's own entry point{lost} is not known here; write the command of {image}{DISABLED}"
            )
            self._tell(f"{self._path}/command", told)
            return {"command": _missing(image), "enabled": False}
        words = [self._filled(_text(word)) for word in (*command, *(args or ()))]
        plain = [word.plain for word in words if word.plain is not None]
        exports = list(self._exports())
        if len(plain) == len(words) and not exports:
            return {"command": [escape_dollars(word) for word in plain]}
        return {
            "command": escape_dollars("".join(exports) + "exec " + " ".join(word.shell for word in words))
        }

    def _exports(self) -> Iterator[str]:
        """Variables that are made of others which are only known when it runs."""
        for name, filled in self._variables.items():
            if filled.plain is None and filled.shell:
                yield f"export {name}={filled.shell}; "


def _missing(image: str) -> str:
    return escape_dollars(f"echo {shlex.quote(f'write here what {image} runs')} >&2; exit 1")


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else show(value)


def _reference(source: Any) -> str:
    """`secretKeyRef db-password key password`."""
    if not isinstance(source, dict):
        return show(source)
    kinds = []
    for kind, what in source.items():
        said = what.values() if isinstance(what, dict) else [what]
        kinds.append(" ".join([kind, *(str(word) for word in said if isinstance(word, str))]))
    return listed(kinds, "and")
