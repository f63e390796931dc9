"""The objects of a job in a cluster: a ConfigMap with its spec, and a CronJob for each schedule.

- The mark is in annotations: the job, its revision, and a seal over the object.
- The trigger handles overlaps: `concurrencyPolicy` is `Allow`, and contention does not fail the pod.  The
  cluster retries nothing: `backoffLimit` is 0, and the next trigger settles the fire of a lost pod.
- Pods have the strictest security settings.
- The server adds defaults.  Only the fields in `managedFields`, which a manager has set, are compared.
"""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

import yaml

from detent.errors import UsageError
from detent.formats.kubernetes.render import CronSchedule
from detent.hosts.base import SPEC_DIR, STOP_S, trigger_max_s
from detent.hosts.reconcile import CUT_DIGITS, Found, Resource, app_of, resource_name, seal
from detent.hosts.remote import compact, spec_document, store_url
from detent.manifest.spec import Spec
from detent.rules.lanes import LATE_S

CRONJOB, CONFIGMAP = "CronJob", "ConfigMap"
MANAGER = "detent"
JOB, REVISION, SEAL = "detent/job", "detent/revision", "detent/seal"
MANAGED_BY, APP = "app.kubernetes.io/managed-by", "detent/app"
NAME_MAX = {CRONJOB: 52, CONFIGMAP: 253}  # the controller appends eleven characters to a CronJob's name
SPEC_MAX = 1_000_000  # bytes; a ConfigMap is limited to 1 MiB
USER = 65_532  # an unprivileged user
DEADLINE_MIN_S = 10  # the controller runs every ten seconds
START_S = 600  # to schedule the pod and pull its image
KEEP_S = 86_400  # a finished Job is kept for its logs
KEPT = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 3}
LINE_MAX = 10_000  # characters; longer lines are folded
OWN = {"spec", "data", "binaryData", "immutable"}  # in addition to metadata

_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

Object = dict[str, Any]

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # faster, if PyYAML has it


class Pod(NamedTuple):
    image: str
    namespace: str
    program: str = "detent"
    store_secret: tuple[str, str] | None = None  # a Secret and its key
    secret: str = ""  # the Secret with the variables of the jobs' secrets
    service_account: str = ""
    resources: Object | None = None


def object_name(kind: str, job: str, index: int | None = None) -> str:
    """Return `detent-app.job-0` as a valid name of an object; a ConfigMap has no number."""
    whole = resource_name(job, index or 0, NAME_MAX[kind])
    if index is None:
        whole = whole.removesuffix("-0")
    if _DNS.fullmatch(whole):
        return whole
    digits = sha256(f"{job}-{index}".encode()).hexdigest()[:CUT_DIGITS]
    plain = re.sub(r"-+\.", ".", whole)[: NAME_MAX[kind] - CUT_DIGITS - 1].rstrip(".-")
    return f"{plain}-{digits}"


def resource_of(made: Object, spec: Spec) -> Resource:
    return Resource(name_of(made), spec.name, spec.revision, dump(made), made["kind"])


def name_of(found: Object) -> str:
    """Return the kind and the name in the form of `kubectl`."""
    return f"{found['kind'].lower()}/{found['metadata']['name']}"


def account_name(name: str) -> str:
    return f"the service account {name or 'default'}"


class _Plain(_Dumper):  # type: ignore[misc]
    """Writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump(document: Object) -> str:
    """Return the object as YAML in plain ASCII."""
    text: str = yaml.dump(document, Dumper=_Plain, sort_keys=True, width=LINE_MAX)
    return text


def load(content: str) -> Object:
    loaded: Object = yaml.safe_load(content)
    return loaded


def _sealed(document: Object) -> str:
    return seal(json.dumps(document, sort_keys=True))


def make_configmap(spec: Spec, pod: Pod) -> Object:
    text = compact(spec_document(spec, pod.store_secret is not None))
    if len(text.encode()) > SPEC_MAX:
        raise UsageError(f"{spec.name}: its spec has more than {SPEC_MAX:,} bytes, the limit of a ConfigMap")
    made = {"apiVersion": "v1", "kind": CONFIGMAP, "data": {spec.file_name: text}}
    return _marked(made, object_name(CONFIGMAP, spec.name), spec, pod)


def make_cronjob(spec: Spec, index: int, schedule: CronSchedule, pod: Pod) -> Object:
    made = {
        "apiVersion": "batch/v1",
        "kind": CRONJOB,
        "spec": {
            "schedule": schedule.schedule,
            "timeZone": schedule.timezone,
            "concurrencyPolicy": "Allow",
            "suspend": False,
            **KEPT,
            **_deadline(spec),
            "jobTemplate": {
                "metadata": {"labels": _labels(spec)},
                "spec": {
                    "backoffLimit": 0,
                    **_longest(spec),
                    "ttlSecondsAfterFinished": KEEP_S,
                    "template": {"metadata": {"labels": _labels(spec)}, "spec": _pod(spec, pod)},
                },
            },
        },
    }
    return _marked(made, object_name(CRONJOB, spec.name, index), spec, pod)


def _deadline(spec: Spec) -> Object:
    policy = spec.job.policy
    limits = [policy.start_deadline_s] if policy.start_deadline_s else []
    limits += [int(LATE_S)] if policy.catch_up == "skip" else []
    return {"startingDeadlineSeconds": max(DEADLINE_MIN_S, ceil(min(limits)))} if limits else {}


def _longest(spec: Spec) -> Object:
    """Limit a Job to the time of all its attempts.  Without a timeout, there is no limit."""
    policy = spec.job.policy
    return {"activeDeadlineSeconds": START_S + trigger_max_s(policy)} if policy.timeout_s else {}


def _pod(spec: Spec, pod: Pod) -> Object:
    account = pod.service_account
    named = {"serviceAccountName": account} if account else {}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_S,
        "automountServiceAccountToken": bool(account),
        **named,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, pod)],
        "volumes": [
            {"name": "spec", "configMap": {"name": object_name(CONFIGMAP, spec.name)}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _container(spec: Spec, pod: Pod) -> Object:
    return {
        "name": "trigger",
        "image": pod.image,
        "command": [_literal(pod.program), "trigger"],
        "args": ["--contended-ok", "--rang-at", "$(DETENT_RANG_BY)", spec.name],
        "env": _environment(spec, pod),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "spec", "mountPath": str(SPEC_DIR), "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        **({"resources": pod.resources} if pod.resources else {}),
    }


def _environment(spec: Spec, pod: Pod) -> list[Object]:
    """The Job's name ends in the scheduled minute.  With a read-only root, only /tmp is writable."""
    by = {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}
    return [
        {"name": "DETENT_RANG_BY", "valueFrom": {"fieldRef": by}},
        {"name": "DETENT_SPEC_DIR", "value": str(SPEC_DIR)},
        _store(spec, pod),
        {"name": "HOME", "value": "/tmp"},
        {"name": "XDG_STATE_HOME", "value": "/tmp/state"},
        *(_from_secret(name, pod.secret, name) for name in dict.fromkeys(spec.variables)),
    ]


def _store(spec: Spec, pod: Pod) -> Object:
    if pod.store_secret:
        return _from_secret("DETENT_STORE", *pod.store_secret)
    return {"name": "DETENT_STORE", "value": _literal(store_url(json.loads(spec.text)))}


def _from_secret(variable: str, secret: str, key: str) -> Object:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _literal(text: str) -> str:
    """Escape `$(NAME)`, which the cluster would expand."""
    return text.replace("$", "$$")


def _labels(spec: Spec) -> Object:
    return {MANAGED_BY: MANAGER, APP: app_of(spec.name).rstrip("-")}


def _marked(made: Object, name: str, spec: Spec, pod: Pod) -> Object:
    made["metadata"] = {
        "name": name,
        "namespace": pod.namespace,
        "labels": _labels(spec),
        "annotations": {JOB: spec.name, REVISION: spec.revision},
    }
    made["metadata"]["annotations"][SEAL] = _sealed(made)
    return made


def read_object(live: Object) -> Found:
    """Read an existing object: its set fields, with only detent's labels and annotations."""
    fields = set_fields(live)
    notes = fields["metadata"].get("annotations", {})
    text = dump(fields)
    if live["metadata"].get("deletionTimestamp"):
        text += "# it is being deleted\n"
    if not (notes.get(JOB) and notes.get(REVISION)):
        return Found(name_of(live), text, kind=live["kind"])
    unsealed = {name: note for name, note in notes.items() if name != SEAL}
    body = {**fields, "metadata": {**fields["metadata"], "annotations": unsealed}}
    intact = text == dump(fields) and _sealed(body) == notes.get(SEAL)
    return Found(name_of(live), text, notes[JOB], notes[REVISION], intact, kind=live["kind"])


def set_fields(live: Object) -> Object:
    """Return the fields that managers have set, without defaults and status."""
    metadata = live["metadata"]
    kept = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": _own_metadata(metadata)}
    fields = [entry.get("fieldsV1", {}) for entry in own_entries(metadata.get("managedFields", []))]
    for key in sorted(OWN & live.keys()):
        sets = [field[f"f:{key}"] for field in fields if f"f:{key}" in field]
        if sets:
            kept[key] = _chosen(live[key], sets)
    return kept


def own_entries(entries: Iterable[Object]) -> list[Object]:
    """Return the entries of the object itself, without its status."""
    return [entry for entry in entries if not entry.get("subresource")]


def _own_metadata(metadata: Object) -> Object:
    labels = {key: text for key, text in (metadata.get("labels") or {}).items() if key in (MANAGED_BY, APP)}
    notes = {
        key: text for key, text in (metadata.get("annotations") or {}).items() if key in (JOB, REVISION, SEAL)
    }
    own = {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
    return {**own, **({"labels": labels} if labels else {}), **({"annotations": notes} if notes else {})}


def _chosen(value: Any, sets: list[Object]) -> Any:
    """Return the part of a value that the sets of fields name; an empty set means all of it."""
    if any(not fields for fields in sets):
        return value
    if isinstance(value, dict):
        named = {key: [fields[f"f:{key}"] for fields in sets if f"f:{key}" in fields] for key in value}
        return {key: _chosen(one, named[key]) for key, one in value.items() if named[key]}
    if isinstance(value, list):
        return [chosen for one in value if (chosen := _chosen_item(one, sets)) is not None]
    return value


def _chosen_item(item: Any, sets: list[Object]) -> Any:
    """Return the named part of a list item, which is named by its value or by some of its keys."""
    inner: list[Object] = []
    for fields in sets:
        for name, below in fields.items():
            if name.startswith("k:") and isinstance(item, dict):
                keys = json.loads(name[2:])
                inner += [below] if all(item.get(key) == want for key, want in keys.items()) else []
            elif name.startswith("v:") and json.loads(name[2:]) == item:
                return item
    return _chosen(item, inner) if inner else None
