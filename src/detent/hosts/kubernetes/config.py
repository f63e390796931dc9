"""Access to a cluster, with a kubeconfig or with the service account of this pod.

The official client reads the kubeconfig, runs its `exec` plugins and uses TLS.  This module adds what the
client lacks:

- It ignores impersonation (`as` and related keys).  We send the headers, and refuse what they cannot express,
  so that a call never has more rights than the kubeconfig gives it.
- It continues without a credential if a plugin fails.  We stop, and report the plugin's output.
- It sends a token without TLS.  We allow that to this machine only.
- It uses the content of a token file unchanged.  We strip the trailing newline, as kubectl does.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote as percent_encoded
from urllib.parse import urlsplit

import yaml

from detent.errors import HostError, UsageError
from detent.text import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
USUAL = "~/.kube/config"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COMPANIONS = ("as-uid", "as-groups", "as-user-extra")  # need `as`


class Access(NamedTuple):
    server: str
    namespace: str
    client: Any  # kubernetes.client.ApiClient; its repr names no credential


def find_access(kubeconfig: str, context: str, env: Mapping[str, str]) -> Access:
    """Return the named cluster, or the default one."""
    named = kubeconfig or env.get("KUBECONFIG", "")
    paths = [Path(path).expanduser() for path in named.split(os.pathsep) if path]
    if kubeconfig and not paths[0].is_file():
        raise UsageError(f"there is no kubeconfig {paths[0]}: name another with --kubeconfig")
    if not named and (usual := Path(USUAL).expanduser()).is_file():
        paths = [usual]
    found = [path for path in paths if path.is_file()]
    if found:
        return _from_files(found, context)
    if env.get("KUBERNETES_SERVICE_HOST") and (ACCOUNT / "token").is_file():
        return _from_account(env)
    raise UsageError(
        f"no cluster is configured: there is no {USUAL}; name one with --kubeconfig, or use --render"
    )


def import_client() -> Any:
    """Import the official client.  This is late, because it takes a second."""
    try:
        import kubernetes
        import kubernetes.config.incluster_config
        import kubernetes.dynamic
    except ImportError:
        raise UsageError(
            "--host kubernetes needs the Kubernetes client: pip install 'detent[kubernetes]'"
        ) from None
    return kubernetes


def _from_account(env: Mapping[str, str]) -> Access:
    kubernetes = import_client()
    settings = _settings(kubernetes)
    environ = {"KUBERNETES_SERVICE_PORT": "443", **env}
    loader = kubernetes.config.incluster_config.InClusterConfigLoader(
        token_filename=str(ACCOUNT / "token"), cert_filename=str(ACCOUNT / "ca.crt"), environ=environ
    )
    with _refused("the pod's service account"):
        loader.load_and_set(settings)
        namespace = (ACCOUNT / "namespace").read_text().strip()
    _trim_token(settings)
    return Access(settings.host, namespace, kubernetes.client.ApiClient(settings))


def _from_files(paths: list[Path], wanted: str) -> Access:
    kubernetes = import_client()
    settings = _settings(kubernetes)
    place = f"the kubeconfig {paths[0]}"
    with _refused(place):
        documents = [_read(path) for path in paths]
        current = wanted or next((name for one in documents if (name := one.get("current-context"))), "")
        context = _entry(documents, "context", current)
        if context is None:
            raise UsageError(f"{place} has no context {quote(str(current))}: name one with --context")
        user = _entry(documents, "user", context.get("user")) or {}
        headers = _impersonation(user)
        with _errors_logged() as errors:
            kubernetes.config.load_kube_config(
                config_file=os.pathsep.join(map(str, paths)),
                context=current,
                client_configuration=settings,
                persist_config=False,
            )
    if user.get("exec") and not settings.api_key and not settings.cert_file:
        plugin = quote(str(user["exec"].get("command")))
        raise HostError(f"the kubeconfig's plugin {plugin} returned no credential: {'; '.join(errors)}")
    _check_server(settings.host, bool(settings.api_key))
    _trim_token(settings)
    client = kubernetes.client.ApiClient(settings)
    for name, value in headers.items():
        client.set_default_header(name, value)
    return Access(settings.host, str(context.get("namespace") or "default"), client)


def _settings(kubernetes: Any) -> Any:
    settings = kubernetes.client.Configuration()
    settings.retries = False  # report errors at once, and follow no redirect
    return settings


def _trim_token(settings: Any) -> None:
    """Strip the token now, and whenever the client reads it again."""
    read_again = settings.refresh_api_key_hook

    def refresh(_: Any) -> None:
        if read_again:
            read_again(settings)  # this also sets the hook
        settings.api_key = {name: token.strip() for name, token in settings.api_key.items()}
        settings.refresh_api_key_hook = refresh

    refresh(settings)


@contextmanager
def _refused(place: str) -> Iterator[None]:
    """Convert errors of the client or the file to one-line usage errors."""
    from kubernetes.config import ConfigException

    try:
        yield
    except UsageError:
        raise
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"cannot read {place}: {first}") from None


@contextmanager
def _errors_logged() -> Iterator[list[str]]:
    """Collect what the client logs: it does not raise if a plugin fails."""
    messages: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger().removeHandler(handler)


def _read(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a kubeconfig: it has no clusters and contexts")
    return document


def _entry(documents: list[dict[str, Any]], kind: str, name: object) -> dict[str, Any] | None:
    """Return the entry of this name.  The first one counts if there are several files."""
    entries = (entry for document in documents for entry in document.get(f"{kind}s") or ())
    return next((entry.get(kind) or {} for entry in entries if entry.get("name") == name), None)


def _impersonation(user: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that make the server use the rights of another user."""
    name, groups = str(user.get("as") or ""), user.get("as-groups") or []
    extra: Mapping[str, list[str]] = user.get("as-user-extra") or {}
    if not name and any(user.get(key) for key in COMPANIONS):
        raise UsageError("the kubeconfig has as-uid, as-groups or as-user-extra without as: name the user")
    several = [key for key, values in {"as-groups": groups, **extra}.items() if len(values) > 1]
    if several:
        raise UsageError(
            f"the kubeconfig has several values for {several[0]}, and the Kubernetes client sends only one: "
            "use a context with one value"
        )
    headers = {"Impersonate-User": name, "Impersonate-Uid": str(user.get("as-uid") or "")}
    headers["Impersonate-Group"] = "".join(map(str, groups))
    for key, values in extra.items():
        headers[f"Impersonate-Extra-{percent_encoded(key.lower(), safe='')}"] = "".join(map(str, values))
    return {header: value for header, value in headers.items() if value}


def _check_server(server: str, has_token: bool) -> None:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"the kubeconfig's server {quote(server)} is not an https:// URL with a host")
    if parts.scheme == "http" and has_token and parts.hostname not in LOOPBACK:
        raise UsageError(
            f"the kubeconfig's server {quote(server)} would receive the token without TLS: use https"
        )
