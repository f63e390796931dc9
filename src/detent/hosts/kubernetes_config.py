"""How to reach a cluster: what a kubeconfig says, or what a pod finds in its own cluster.

- `--kubeconfig`, `$KUBECONFIG` (several: the first word counts), `~/.kube/config`, else the pod's account.
- Tokens, client certificates and `exec` plugins, as the clouds use them.
- A token goes nowhere without TLS but to this machine.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from detent.core.text import quote
from detent.errors import HostError, UsageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
USUAL = "~/.kube/config"
PLUGIN_S = 60.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNKNOWN = ("auth-provider", "username", "password", "proxy-url")  # old, or not for us


class Access(NamedTuple):
    """A cluster, and who we are there."""

    server: str
    namespace: str = "default"
    token: str = ""
    context: ssl.SSLContext | None = None  # None: plain HTTP


def find_access(kubeconfig: str, context: str, env: Mapping[str, str]) -> Access:
    """The cluster that was named, or the one that is usual here."""
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
        f"no cluster is known here: there is no {USUAL}; name one with --kubeconfig, or --render"
    )


def _from_account(env: Mapping[str, str]) -> Access:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(ACCOUNT / "namespace").read_text().strip(),
        token=(ACCOUNT / "token").read_text().strip(),
        context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
    )


def _from_files(paths: list[Path], wanted: str) -> Access:
    documents = [_read(path) for path in paths]
    current = wanted or next((said for one in documents if (said := one.get("current-context"))), "")
    context = _entry(documents, "context", current, "name one of its contexts with --context")
    place = f"the context {quote(current)}"
    cluster = _entry(documents, "cluster", context.get("cluster", ""), f"{place} needs one")
    user = _entry(documents, "user", context["user"], f"{place} needs one") if context.get("user") else {}
    odd = [key for key in UNKNOWN if user.get(key) or cluster.get(key)]
    if odd:
        raise UsageError(
            f"{paths[0]}: {odd[0]} is not understood; use a token, a certificate or an exec plugin"
        )
    identity = {**user, **(_ask_plugin(user["exec"]) if user.get("exec") else {})}
    server = str(cluster.get("server", ""))
    token = identity.get("token") or _token_file(identity)
    _check_server(server, bool(token))
    tls = _tls(cluster, identity) if server.startswith("https://") else None
    return Access(server, str(context.get("namespace") or "default"), str(token), tls)


def _read(path: Path) -> dict[str, Any]:
    """A kubeconfig; the files that it names stand beside it."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read the kubeconfig {path}: {str(error).splitlines()[0]}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{path} is no kubeconfig: it has no clusters and contexts")
    for kind in ("cluster", "user"):
        for entry in document.get(f"{kind}s") or []:
            said = entry.get(kind) or {}
            for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                if said.get(key):
                    said[key] = str(path.parent / said[key])
    return document


def _entry(documents: list[dict[str, Any]], kind: str, name: str, advice: str) -> dict[str, Any]:
    for document in documents:
        for entry in document.get(f"{kind}s") or []:
            if entry.get("name") == name and isinstance(entry.get(kind), dict):
                found: dict[str, Any] = entry[kind]
                return found
    raise UsageError(f"the kubeconfig has no {kind} {quote(str(name))}: {advice}")


def _check_server(server: str, has_token: bool) -> None:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"the kubeconfig's server {quote(server)} is not https:// and a host")
    if parts.scheme == "http" and has_token and parts.hostname not in LOOPBACK:
        raise UsageError(
            f"the kubeconfig's server {quote(server)} would get the token without TLS: use https"
        )


def _token_file(identity: Mapping[str, Any]) -> str:
    return Path(identity["tokenFile"]).read_text().strip() if identity.get("tokenFile") else ""


def _tls(cluster: Mapping[str, Any], identity: Mapping[str, Any]) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    authority = "".join(text.decode() for text in _material(cluster, "certificate-authority"))
    if authority:
        tls = ssl.create_default_context(cadata=authority)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = b"\n".join(_material(identity, "client-certificate"))
    if certificate:
        with NamedTemporaryFile() as file:  # for its owner's eyes only; OpenSSL reads no other way
            file.write(certificate + b"\n" + b"".join(_material(identity, "client-key")))
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _material(said: Mapping[str, Any], key: str) -> Iterator[bytes]:
    try:
        if said.get(f"{key}-data"):
            yield base64.b64decode(said[f"{key}-data"])
        elif said.get(key):
            yield Path(said[key]).read_bytes()
    except (OSError, binascii.Error, ValueError) as error:
        raise UsageError(f"the kubeconfig's {key} cannot be read: {error}") from None


def _ask_plugin(said: Mapping[str, Any]) -> dict[str, Any]:
    """A token or a certificate from the program that the kubeconfig names."""
    words = [str(said.get("command", "")), *map(str, said.get("args") or [])]
    asked = {"apiVersion": said.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    given = {str(one["name"]): str(one["value"]) for one in said.get("env") or []}
    env = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        done = subprocess.run(words, env=env, capture_output=True, timeout=PLUGIN_S, stdin=subprocess.DEVNULL)
        status = json.loads(done.stdout)["status"] if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise HostError(f"the kubeconfig's plugin {quote(words[0])} gave no credential: {error}") from None
    if not isinstance(status, dict):
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise HostError(f"the kubeconfig's plugin {quote(words[0])} gave no credential: {' '.join(last)}")
    return {
        "token": status.get("token", ""),
        "client-certificate-data": _encoded(status.get("clientCertificateData")),
        "client-key-data": _encoded(status.get("clientKeyData")),
    }


def _encoded(text: str | None) -> str:
    return base64.b64encode(text.encode()).decode() if text else ""
