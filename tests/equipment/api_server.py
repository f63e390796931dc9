"""A stand-in for a cluster's API server: CronJobs and ConfigMaps over real HTTP, kept in memory.

It implements server-side apply as documented: owners of fields by manager and operation; conflict,
`force`, removal of what an owner no longer applies, defaults that have no owner; versions that must be the
newest, preconditions of deletes, pages.  It is no Kubernetes: nothing is run, and admission lets all pass.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import kubernetes_validate
import yaml

VERSION = "1.29"  # of the schemas
TOKEN = "a-token-of-the-test"
KINDS = {"cronjobs": ("CronJob", "batch/v1"), "configmaps": ("ConfigMap", "v1")}
KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
PAGE_MAX = 2  # so that a few objects are several pages
POD_DEFAULTS = {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
CONTAINER_DEFAULTS = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
Object = dict[str, Any]
Paths = set[tuple[str, ...]]


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# Fields and their owners.


def paths_of(value: Any, at: tuple[str, ...] = ()) -> Paths:
    """Every field of a value; a list is one, unless its items have keys."""
    found: Paths = set()
    if isinstance(value, dict) and value:
        for key, one in value.items():
            found |= paths_of(one, (*at, f"f:{key}"))
        return found
    key = KEYS.get(at[-1][2:]) if at else None
    if isinstance(value, list) and key:
        for item in value:
            inner = (*at, "k:" + json.dumps({key: item[key]}, separators=(",", ":")))
            found |= {(*inner, ".")} | paths_of(item, inner)
        return found
    return {at}


def fields_v1(paths: Paths) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        here = tree
        for step in path:
            here = here.setdefault(step, {})
    return tree


def paths_in(tree: Object, at: tuple[str, ...] = ()) -> Paths:
    if not tree:
        return {at}
    return set().union(*(paths_in(below, (*at, step)) for step, below in tree.items()))


def look(value: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path; None: nothing."""
    for step in path:
        if step == ".":
            return value if value is None else True
        if step.startswith("f:"):
            value = value.get(step[2:]) if isinstance(value, dict) else None
        else:
            keys = json.loads(step[2:])
            items = value if isinstance(value, list) else []
            value = next((one for one in items if keys.items() <= one.items()), None)
        if value is None:
            return None
    return value


def remove(value: Any, path: tuple[str, ...]) -> None:
    """Take away what stands at a path, and what it leaves empty."""
    step, rest = path[0], path[1:]
    if isinstance(value, list):
        keys = json.loads(step[2:])
        item = next((one for one in value if keys.items() <= one.items()), None)
        if item is not None and (rest == (".",) or not rest):
            value.remove(item)
        elif item is not None:
            remove(item, rest)
    elif isinstance(value, dict) and step[2:] in value:
        if rest and rest != (".",):
            remove(value[step[2:]], rest)
        else:
            del value[step[2:]]


def merge(live: Any, wanted: Any, name: str = "") -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict):
        return {**live, **{key: merge(live.get(key), one, key) for key, one in wanted.items()}}
    key = KEYS.get(name)
    if key and isinstance(live, list):
        merged = [merge(_by(live, key, one[key]), one) for one in wanted]
        return merged + [one for one in live if _by(wanted, key, one[key]) is None]
    return deepcopy(wanted)


def _by(items: list[Object], key: str, value: Any) -> Object | None:
    return next((item for item in items if item.get(key) == value), None)


def with_defaults(one: Object) -> Object:
    made = deepcopy(one)
    if made["kind"] == "CronJob":
        pod = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for key, value in POD_DEFAULTS.items():
            pod.setdefault(key, value)
        for container in pod["containers"]:
            for key, value in CONTAINER_DEFAULTS.items():
                container.setdefault(key, deepcopy(value))
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                volume["configMap"].setdefault("defaultMode", 420)
    return made


def content(one: Object) -> Object:
    """What managers can own."""
    metadata = {key: value for key, value in one["metadata"].items() if key in ("labels", "annotations")}
    rest = {
        key: value for key, value in one.items() if key not in ("apiVersion", "kind", "metadata", "status")
    }
    return {**rest, "metadata": metadata}


class Objects:
    """All that the server keeps."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], Object] = {}
        self.calls: list[str] = []
        self.headers: dict[str, str] = {}  # of the newest request
        self._version = 0
        self._lock = threading.RLock()

    def put(
        self, where: tuple[str, str, str], one: Object, manager: str, operation: str, paths: Paths
    ) -> Object:
        """Keep a new state, of which these fields are this manager's."""
        errors = _schema_errors(one)
        if errors:
            raise Refused(422, errors)
        self._version += 1
        old = self.kept.get(where)
        entries = [
            entry
            for entry in one["metadata"].get("managedFields", [])
            if (entry["manager"], entry["operation"]) != (manager, operation)
        ]
        if paths:
            fields = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1"}
            entries.append({**fields, "apiVersion": one["apiVersion"], "fieldsV1": fields_v1(paths)})
        one["metadata"] |= {
            "managedFields": entries,
            "resourceVersion": str(self._version),
            "uid": old["metadata"]["uid"] if old else f"uid-{self._version}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        if old and _still(old) == _still(one):
            return old  # nothing was changed: the version stays
        self.kept[where] = one
        return one

    def apply(self, where: tuple[str, str, str], wanted: Object, manager: str, force: bool) -> Object:
        """Server-side apply."""
        with self._lock:
            version = wanted["metadata"].pop("resourceVersion", "")
            old = self.kept.get(where)
            if version and (old is None or old["metadata"]["resourceVersion"] != version):
                raise Refused(
                    409, "the object has been modified; please apply your changes to the latest version"
                )
            mine = paths_of(content(wanted))
            if old is None:
                return self.put(where, with_defaults(wanted), manager, "Apply", mine)
            before = owned(old, manager, "Apply")
            new = deepcopy(old)
            for entry in new["metadata"]["managedFields"]:
                if (entry["manager"], entry["operation"]) == (manager, "Apply"):
                    continue
                theirs = paths_in(entry["fieldsV1"])
                clash = {path for path in theirs & mine if look(old, path) != look(wanted, path)}
                if clash and not force:
                    fields = ", ".join(".".join(step[2:] for step in path) for path in sorted(clash))
                    raise Refused(409, f'Apply failed with conflict with "{entry["manager"]}": {fields}')
                entry["fieldsV1"] = fields_v1(theirs - clash)
            new["metadata"]["managedFields"] = [e for e in new["metadata"]["managedFields"] if e["fieldsV1"]]
            others = set().union(
                *(paths_in(e["fieldsV1"]) for e in new["metadata"]["managedFields"] if not _is(e, manager))
            )
            for path in sorted(before - mine - others, key=len):
                remove(new, path)
            merged = merge(new, wanted)
            merged["metadata"]["managedFields"] = new["metadata"]["managedFields"]
            return self.put(where, with_defaults(merged), manager, "Apply", mine)

    def update(self, where: tuple[str, str, str], wanted: Object, manager: str) -> Object:
        """A PUT: the client that changes a field owns it."""
        with self._lock:
            old = self.kept.get(where)
            if old is None:
                raise Refused(404, f"{where[2]} not found")
            if wanted["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
                raise Refused(
                    409, "the object has been modified; please apply your changes to the latest version"
                )
            new = with_defaults(wanted)
            entries = deepcopy(new["metadata"].get("managedFields") or old["metadata"]["managedFields"])
            there = paths_of(content(new))
            changed = {path for path in there if look(new, path) != look(old, path)}
            for entry in entries:
                entry["fieldsV1"] = fields_v1((paths_in(entry["fieldsV1"]) & there) - changed)
            new["metadata"]["managedFields"] = [entry for entry in entries if entry["fieldsV1"]]
            return self.put(where, new, manager, "Update", changed | (owned(new, manager, "Update") & there))

    def delete(self, where: tuple[str, str, str], asked: Object) -> Object:
        with self._lock:
            old = self.kept.get(where)
            if old is None:
                raise Refused(404, f"{where[2]} not found")
            for key, value in (asked.get("preconditions") or {}).items():
                if old["metadata"][key] != value:
                    raise Refused(409, f"the {key} in the precondition is not that of the object")
            del self.kept[where]
            return {"kind": "Status", "status": "Success"}

    def list(self, namespace: str, plural: str, limit: int, going_on: str) -> Object:
        with self._lock:
            mine = [self.kept[key] for key in sorted(self.kept) if key[:2] == (namespace, plural)]
        start, count = int(going_on or 0), min(limit, PAGE_MAX)
        page = [
            {key: one[key] for key in one if key not in ("kind", "apiVersion")}
            for one in mine[start : start + count]
        ]
        more = {"continue": str(start + count)} if start + count < len(mine) else {}
        return {"kind": "List", "metadata": more, "items": page}


def owned(one: Object, manager: str, operation: str) -> Paths:
    for entry in one["metadata"].get("managedFields", []):
        if (entry["manager"], entry["operation"]) == (manager, operation):
            return paths_in(entry["fieldsV1"])
    return set()


def _is(entry: Object, manager: str) -> bool:
    return (entry["manager"], entry["operation"]) == (manager, "Apply")


def _still(one: Object) -> Object:
    metadata = {key: value for key, value in one["metadata"].items() if key != "resourceVersion"}
    return {**one, "metadata": metadata}


def _schema_errors(one: Object) -> str:
    server_own = ("managedFields", "resourceVersion", "uid")
    plain = {**one, "metadata": {k: v for k, v in one["metadata"].items() if k not in server_own}}
    return _schema_errors_of(json.dumps(plain, sort_keys=True))


@lru_cache
def _schema_errors_of(text: str) -> str:
    try:
        kubernetes_validate.validate(json.loads(text), VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return ""


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects: Objects

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.objects.headers = dict(self.headers)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized")
            status, answer = 200, self._answer(parts.path, parse_qs(parts.query), body)
        except Refused as refused:
            status, answer = (
                refused.status,
                {"kind": "Status", "message": str(refused), "code": refused.status},
            )
        said = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PATCH = do_PUT = do_DELETE = _serve

    def _answer(self, path: str, query: dict[str, list[str]], body: bytes) -> Object:
        words = [unquote(word) for word in path.strip("/").split("/")]
        at = words.index("namespaces")
        namespace, plural, *name = words[at + 1 :]
        kind, version = KINDS[plural]
        assert "/".join(words[:at]) == ("api/v1" if version == "v1" else f"apis/{version}")
        if not name:
            limit = int(query.get("limit", ["1000"])[0])
            return self.objects.list(namespace, plural, limit, query.get("continue", [""])[0])
        where = (namespace, plural, name[0])
        self.objects.calls.append(f"{self.command} {name[0]}")
        if self.command == "DELETE":
            return self.objects.delete(where, json.loads(body or b"{}"))
        manager = query["fieldManager"][0]
        if self.command == "PATCH":
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            wanted = yaml.safe_load(body)
            assert (wanted["kind"], wanted["apiVersion"], wanted["metadata"]["name"]) == (
                kind,
                version,
                name[0],
            )
            return deepcopy(self.objects.apply(where, wanted, manager, query.get("force") == ["true"]))
        return deepcopy(self.objects.update(where, json.loads(body), manager))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def api_server(folder: Path) -> Iterator[tuple[Objects, Path]]:
    """A server on a free port, and a kubeconfig for it."""
    objects = Objects()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"objects": objects}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "jobs"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    try:
        yield objects, kubeconfig
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
