"""The API of a cluster: list, apply, replace and delete the objects of one namespace.

The official client sends the calls.  We use its dynamic form without discovery: objects are plain documents,
and both kinds have had the same paths since Kubernetes 1.21.  Every call may be repeated: what is changed is
named with its version, and a version that is not the newest is refused by the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from detent.errors import HostError
from detent.hosts.kubernetes.config import Access, import_client
from detent.hosts.kubernetes.objects import CONFIGMAP, CRONJOB, MANAGER, Object

CALL_S = 30.0
PAGE = 500  # objects in one answer
RESOURCES = {CRONJOB: ("apis/batch/v1", "cronjobs"), CONFIGMAP: ("api/v1", "configmaps")}
VERSIONS = {CRONJOB: "batch/v1", CONFIGMAP: "v1"}
MESSAGE_MAX = 500  # characters of the server's words
JSON, APPLY = "application/json", "application/apply-patch+yaml"


class NotFound(HostError):
    """There is no such object."""


class Cluster:
    """One namespace of a cluster."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._server, self._namespace = access.server, namespace
        self._client = import_client().dynamic.DynamicClient(access.client, discoverer=lambda *_: None)

    def list(self, kind: str) -> list[Object]:
        found: list[Object] = []
        going_on = ""
        while True:
            asked = {"limit": str(PAGE), **({"continue": going_on} if going_on else {})}
            page = self._call("GET", self._path(kind), asked)
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
        return self._call("PATCH", self._path_of(wanted), asked, sent, APPLY)

    def replace(self, wanted: Object) -> Object:
        return self._call("PUT", self._path_of(wanted), {"fieldManager": MANAGER}, wanted)

    def delete(self, live: Object) -> None:
        """This very object, as it was seen; what it started goes on.  One that is gone already is gone."""
        seen = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
        asked = {"propagationPolicy": "Orphan", "preconditions": seen}
        with suppress(NotFound):
            self._call("DELETE", self._path_of(live), {}, asked)

    def _path(self, kind: str) -> str:
        group, plural = RESOURCES[kind]
        return f"/{group}/namespaces/{quote(self._namespace, safe='')}/{plural}"

    def _path_of(self, one: Object) -> str:
        return f"{self._path(one['kind'])}/{quote(one['metadata']['name'], safe='')}"

    def _call(
        self, method: str, path: str, asked: Mapping[str, str], body: Object | None = None, kind: str = JSON
    ) -> Object:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._client.request(
                method,
                path,
                body=body,
                serialize=False,
                query_params=[*asked.items()],
                content_type=kind,
                _request_timeout=CALL_S,
            )
            said = json.loads(answer.data)
        except ApiException as error:
            if error.status:
                raise _error(error.status, _loaded(error.body), f"{method} {path}") from None
            raise self._silent(error.reason) from None
        except HTTPError as error:
            raise self._silent(error) from None
        except ValueError:
            raise self._silent("its answer is no JSON") from None
        found: Object = said
        return found

    def _silent(self, why: object) -> HostError:
        return HostError(f"the cluster at {self._server} does not answer: {why}")


def _loaded(body: object) -> Any:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return json.loads(text)
    except ValueError:
        return {"message": text[:200]}


def _error(status: int, answer: Any, what: str) -> HostError:
    """What the server said, and what to do about it."""
    said = answer.get("message", "") if isinstance(answer, dict) else ""
    advice = {
        401: "log in again, or name another kubeconfig",
        403: "ask for the rights that docs/howto/use-kubernetes.md lists",
        409: "somebody else changed it at the same time: look, and apply again",
    }.get(status, "")
    plain = "".join(c if c.isprintable() else " " for c in str(said))[:MESSAGE_MAX]
    told = f"the cluster refused {what} ({status}): {plain}"
    kind = NotFound if status == 404 else HostError
    return kind(f"{told}; {advice}" if advice else told)
