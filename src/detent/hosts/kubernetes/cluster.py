"""The API of a cluster: list, apply, replace and delete the objects of one namespace.

The official client sends the calls, in its dynamic form without discovery: objects are plain documents, and
both kinds have had the same paths since Kubernetes 1.21.  A change names the version that it replaces, and
the server refuses it if there is a newer one.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote

from detent.errors import HostError
from detent.hosts.kubernetes.config import Access, import_client
from detent.hosts.kubernetes.objects import CONFIGMAP, CRONJOB, MANAGER, Object

CALL_S = 30.0
PAGE = 500  # objects per response
RESOURCES = {CRONJOB: ("apis/batch/v1", "cronjobs"), CONFIGMAP: ("api/v1", "configmaps")}
VERSIONS = {CRONJOB: "batch/v1", CONFIGMAP: "v1"}
MESSAGE_MAX = 500  # characters of the server's message
JSON, APPLY = "application/json", "application/apply-patch+yaml"


class NotFound(HostError):
    pass


class Cluster:
    def __init__(self, access: Access, namespace: str) -> None:
        self._server, self._namespace = access.server, namespace
        self._client = import_client().dynamic.DynamicClient(access.client, discoverer=lambda *_: None)

    def list(self, kind: str) -> list[Object]:
        found: list[Object] = []
        cursor = ""
        while True:
            query = {"limit": str(PAGE), **({"continue": cursor} if cursor else {})}
            page = self._call("GET", self._path(kind), query)
            found += [{**one, "apiVersion": VERSIONS[kind], "kind": kind} for one in page.get("items") or []]
            cursor = page.get("metadata", {}).get("continue", "")
            if not cursor:
                return found

    def apply(self, wanted: Object, version: str = "") -> Object:
        """Create an object by server-side apply or, with its version, overwrite the fields of other
        managers."""
        query, sent = {"fieldManager": MANAGER, "fieldValidation": "Strict"}, wanted
        if version:
            query["force"] = "true"
            sent = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
        return self._call("PATCH", self._path_of(wanted), query, sent, APPLY)

    def replace(self, wanted: Object) -> Object:
        return self._call("PUT", self._path_of(wanted), {"fieldManager": MANAGER}, wanted)

    def delete(self, live: Object) -> None:
        """Delete exactly this version of the object, but not the Jobs that it started."""
        seen = {"uid": live["metadata"]["uid"], "resourceVersion": live["metadata"]["resourceVersion"]}
        options = {"propagationPolicy": "Orphan", "preconditions": seen}
        with suppress(NotFound):
            self._call("DELETE", self._path_of(live), {}, options)

    def _path(self, kind: str) -> str:
        group, plural = RESOURCES[kind]
        return f"/{group}/namespaces/{quote(self._namespace, safe='')}/{plural}"

    def _path_of(self, one: Object) -> str:
        return f"{self._path(one['kind'])}/{quote(one['metadata']['name'], safe='')}"

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Object | None = None, kind: str = JSON
    ) -> Object:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._client.request(
                method,
                path,
                body=body,
                serialize=False,
                query_params=[*query.items()],
                content_type=kind,
                _request_timeout=CALL_S,
            )
            found: Object = json.loads(answer.data)
        except ApiException as error:
            if error.status:
                raise _error(error.status, error.body, f"{method} {path}") from None
            raise self._unreachable(error.reason) from None
        except HTTPError as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise self._unreachable("its response is not JSON") from None
        return found

    def _unreachable(self, why: object) -> HostError:
        return HostError(f"the cluster at {self._server} does not answer: {why}")


def _error(status: int, body: object, what: str) -> HostError:
    """Return the server's message with advice."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        answer = json.loads(text)
        message = answer.get("message", "") if isinstance(answer, dict) else ""
    except ValueError:
        message = text[:200]
    advice = {
        401: "log in again, or use another kubeconfig",
        403: "request the permissions in docs/howto/use-kubernetes.md",
        409: "it was changed at the same time: check it, and apply again",
    }.get(status, "")
    plain = "".join(c if c.isprintable() else " " for c in str(message))[:MESSAGE_MAX]
    text = f"the cluster refused {what} ({status}): {plain}"
    kind = NotFound if status == 404 else HostError
    return kind(f"{text}; {advice}" if advice else text)
