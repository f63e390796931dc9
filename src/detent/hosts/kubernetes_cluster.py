"""The API of a cluster, over HTTP: list, apply, replace and delete the objects of one namespace.

Python's own client is enough for these four calls; the official one is larger than all of detent, and takes
longer to load than most of our verbs take.  Every call may be repeated: what is changed is named with its
version, and a version that is not the newest is refused by the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from detent.errors import HostError
from detent.hosts.kubernetes_config import Access
from detent.hosts.kubernetes_objects import CONFIGMAP, CRONJOB, MANAGER, Object, dump

CALL_S = 30.0
PAGE = 500  # objects in one answer
ANSWER_MAX = 64 * 1024 * 1024  # bytes: a page of the largest ConfigMaps is smaller in practice
RESOURCES = {CRONJOB: ("apis/batch/v1", "cronjobs"), CONFIGMAP: ("api/v1", "configmaps")}
VERSIONS = {CRONJOB: "batch/v1", CONFIGMAP: "v1"}
SAID_MAX = 500  # characters of the server's words
APPLY = "application/apply-patch+yaml"


class Missing(HostError):
    """There is no such object."""


class Cluster:
    """One namespace of a cluster."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._access = access
        self._namespace = namespace
        self._connection: HTTPConnection | None = None

    def list(self, kind: str) -> list[Object]:
        found: list[Object] = []
        going_on = ""
        while True:
            asked = {"limit": str(PAGE), **({"continue": going_on} if going_on else {})}
            page = self._call("GET", self._path(kind) + "?" + urlencode(asked))
            found += [{**one, "apiVersion": VERSIONS[kind], "kind": kind} for one in page.get("items") or []]
            going_on = page.get("metadata", {}).get("continue", "")
            if not going_on:
                return found

    def apply(self, wanted: Object, version: str = "") -> Object:
        """Server-side apply: as a new object or, with the version that was seen, over whoever else set it."""
        asked = {
            "fieldManager": MANAGER,
            "fieldValidation": "Strict",
            **({"force": "true"} if version else {}),
        }
        sent = wanted
        if version:
            sent = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
        path = f"{self._path_of(wanted)}?{urlencode(asked)}"
        return self._call("PATCH", path, dump(sent).encode(), APPLY)

    def replace(self, wanted: Object) -> Object:
        path = f"{self._path_of(wanted)}?{urlencode({'fieldManager': MANAGER})}"
        return self._call("PUT", path, json.dumps(wanted).encode(), "application/json")

    def delete(self, live: Object) -> None:
        """This very object, as it was seen; what it started goes on.  One that is gone already is gone."""
        seen = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
        asked = {"propagationPolicy": "Orphan", "preconditions": seen}
        with suppress(Missing):
            self._call("DELETE", self._path_of(live), json.dumps(asked).encode(), "application/json")

    def _path(self, kind: str) -> str:
        group, plural = RESOURCES[kind]
        base = urlsplit(self._access.server).path.rstrip("/")
        return f"{base}/{group}/namespaces/{quote(self._namespace, safe='')}/{plural}"

    def _path_of(self, one: Object) -> str:
        return f"{self._path(one['kind'])}/{quote(one['metadata']['name'], safe='')}"

    # HTTP.

    def _call(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> Object:
        headers = {"Accept": "application/json", "User-Agent": "detent"}
        headers |= {"Content-Type": kind} if kind else {}
        headers |= {"Authorization": f"Bearer {self._access.token}"} if self._access.token else {}
        try:
            status, said = self._send(method, path, body, headers)
        except (OSError, HTTPException) as error:
            told = str(error) or type(error).__name__
            raise HostError(f"the cluster at {self._access.server} does not answer: {told}") from None
        try:
            answer = json.loads(said)
        except ValueError:
            answer = {"message": said[:200].decode("utf-8", "replace")}
        if status >= 300 or not isinstance(answer, dict):
            raise _error(status, answer, method, path)
        return answer

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """On the connection that is there; one that the server closed meanwhile is opened again."""
        is_fresh = self._connection is None
        self._connection = self._connection or self._connect()
        try:
            self._connection.request(method, path, body, dict(headers))
            answer = self._connection.getresponse()
            said = answer.read(ANSWER_MAX)
        except (ConnectionError, HTTPException, TimeoutError) as error:
            self._connection.close()
            self._connection = None
            if is_fresh or isinstance(error, TimeoutError):
                raise
            return self._send(method, path, body, headers)
        return answer.status, said

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self._access.server)
        if self._access.context is None:
            return HTTPConnection(parts.hostname or "", parts.port, timeout=CALL_S)
        return HTTPSConnection(parts.hostname or "", parts.port, timeout=CALL_S, context=self._access.context)


def _error(status: int, answer: Any, method: str, path: str) -> HostError:
    """What the server said, and what to do about it."""
    said = answer.get("message", "") if isinstance(answer, dict) else ""
    what = f"{method} {path.partition('?')[0]}"
    advice = {
        401: "log in again, or name another kubeconfig",
        403: "ask for the rights that docs/howto/use-kubernetes.md lists",
        409: "somebody else changed it at the same time: look, and apply again",
    }.get(status, "")
    plain = "".join(c if c.isprintable() else " " for c in str(said))[:SAID_MAX]
    told = f"the cluster refused {what} ({status}): {plain}"
    kind = Missing if status == 404 else HostError
    return kind(f"{told}; {advice}" if advice else told)
