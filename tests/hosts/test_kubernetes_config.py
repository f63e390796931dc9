"""How a cluster is found: kubeconfigs as people and clouds write them, and a pod's own account."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.cli_world import Detent
from tests.equipment.api_server import TOKEN, api_server
from tests.hosts.kubernetes_world import IMAGE
from tests.runners.http_servers import answering_tls, make_certificate

from detent.errors import DetentError, HostError, UsageError
from detent.hosts.kubernetes import config
from detent.hosts.kubernetes.cluster import Cluster
from detent.hosts.kubernetes.config import Access, find_access

JOBS = "version: 2\napp: shop\nstore: redis://r\njobs: [{name: a, schedule: '@daily', command: 'true'}]\n"


def write(path: Path, server: str, user: dict[str, Any], **context: str) -> Path:
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_token_in_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with api_server(tmp_path) as (_, kubeconfig):
        server = server_of(kubeconfig)
        path = write(tmp_path / "config", server, {"tokenFile": "token"}, namespace="shop")
        found = find_access(str(path), "", {})
        assert (found.server, found.namespace) == (server, "shop")
        cluster = Cluster(found, "shop")
        assert cluster.list("CronJob") == cluster.list("ConfigMap") == []
    assert TOKEN not in repr(found) + repr(cluster)


def token_of(access: Access) -> str:
    return "".join(access.client.configuration.api_key.values())


def server_of(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def test_another_user_is_impersonated_as_the_kubeconfig_says(tmp_path: Path) -> None:
    """Otherwise `apply` would have all rights of the token."""
    user = {"token": TOKEN, "as": "deployer", "as-uid": "17", "as-groups": ["shop-deployers"]}
    user["as-user-extra"] = {"Example.org/Reason": ["release"]}
    with api_server(tmp_path) as (objects, kubeconfig):
        path = write(tmp_path / "config", server_of(kubeconfig), user)
        assert Cluster(find_access(str(path), "", {}), "jobs").list("CronJob") == []
        sent = {name: value for name, value in objects.headers.items() if name.startswith("Impersonate")}
    assert sent == {
        "Impersonate-User": "deployer",
        "Impersonate-Uid": "17",
        "Impersonate-Group": "shop-deployers",
        "Impersonate-Extra-example.org%2Freason": "release",
    }


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"as-groups": ["a"]}, "without as: name the user"),
        ({"as": "deployer", "as-groups": ["a", "b"]}, "several values for as-groups"),
        ({"as": "deployer", "as-user-extra": {"scopes": ["a", "b"]}}, "several values for scopes"),
    ],
)
def test_an_impersonation_that_cannot_be_sent_is_refused(
    tmp_path: Path, user: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "config", "http://127.0.0.1:1", {"token": TOKEN, **user})
    with pytest.raises(UsageError, match=message):
        find_access(str(path), "", {})


def test_a_credential_plugin_is_run_as_clouds_configure_it(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}}
    plugin.write_text(
        "import json, os\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        f"assert os.environ['REGION'] == 'x'\nprint({json.dumps(answer)!r})\n"
    )
    said = {"apiVersion": version, "command": sys.executable, "args": [str(plugin)]}
    said["env"] = [{"name": "REGION", "value": "x"}]
    with api_server(tmp_path) as (_, kubeconfig):
        path = write(tmp_path / "config", server_of(kubeconfig), {"exec": said})
        assert Cluster(find_access(str(path), "", {}), "jobs").list("CronJob") == []
        wrong = write(tmp_path / "wrong", server_of(kubeconfig), {"token": "wrong"})
        with pytest.raises(HostError, match=r"401.*log in"):
            Cluster(find_access(str(wrong), "", {}), "jobs").list("CronJob")
    plugin.write_text("import sys; sys.exit('not logged in')")
    with pytest.raises(HostError, match="not logged in"):
        find_access(str(path), "", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "cannot read"),
        ("- a", "is not a kubeconfig"),
        ("{}", "has no context"),
        ("contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x", "cannot read .*clusters"),
    ],
)
def test_problems_of_a_kubeconfig_are_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(DetentError, match=message):
        find_access(str(tmp_path / "config"), "", {})


def test_a_token_is_not_sent_without_tls(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "http://cluster.example.org", {"token": "t0ken"})
    with pytest.raises(DetentError, match="without TLS") as refused:
        find_access(str(path), "", {})
    assert "t0ken" not in str(refused.value)


def test_a_cluster_is_known_by_its_authority_and_knows_us_by_our_certificate(tmp_path: Path) -> None:
    both = make_certificate(tmp_path)
    said = b'{"items": []}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said)
    with answering_tls(both, answer) as served:
        identity = {"client-certificate": both.name, "client-key": both.name}
        path = write(tmp_path / "config", f"https://127.0.0.1:{served.port}", identity)
        with pytest.raises(HostError, match="certificate verify failed"):
            Cluster(find_access(str(path), "", {}), "jobs").list("CronJob")
        document = yaml.safe_load(path.read_text())
        authority = base64.b64encode(Path(f"{both}.crt").read_bytes()).decode()
        document["clusters"][0]["cluster"]["certificate-authority-data"] = authority
        path.write_text(yaml.safe_dump(document))
        assert Cluster(find_access(str(path), "", {}), "jobs").list("CronJob") == []


def test_a_cluster_is_known_by_the_name_that_the_kubeconfig_gives_it(tmp_path: Path) -> None:
    """As behind a tunnel: the certificate bears another name than the address."""
    both = make_certificate(tmp_path, "DNS:cluster.internal")
    said = b'{"items": []}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said)
    with answering_tls(both, answer) as served:
        path = write(tmp_path / "config", f"https://127.0.0.1:{served.port}", {"token": TOKEN})
        document = yaml.safe_load(path.read_text())
        cluster = document["clusters"][0]["cluster"]
        cluster["certificate-authority"] = f"{both}.crt"
        path.write_text(yaml.safe_dump(document))
        with pytest.raises(HostError, match=r"certificate is not valid|doesn't match|mismatch"):
            Cluster(find_access(str(path), "", {}), "jobs").list("CronJob")
        cluster["tls-server-name"] = "cluster.internal"
        path.write_text(yaml.safe_dump(document))
        assert Cluster(find_access(str(path), "", {}), "jobs").list("CronJob") == []


def test_a_pod_finds_its_own_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(config, "ACCOUNT", tmp_path)
    make_certificate(tmp_path).with_name("both.pem.crt").rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "namespace").write_text("shop")
    found = find_access("", "", {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (found.server, found.namespace) == ("https://[fd00::1]:6443", "shop")
    assert token_of(found).lower() == "bearer t0ken"
    assert found.client.configuration.verify_ssl


def test_without_the_client_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "config", "http://127.0.0.1:1", {"token": TOKEN})
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(UsageError, match=r"pip install 'detent\[kubernetes\]'"):
        find_access(str(path), "", {})


def test_without_a_cluster_the_error_has_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DetentError, match="--kubeconfig, or use --render"):
        find_access("", "", {})
    with pytest.raises(DetentError, match="there is no kubeconfig"):
        find_access(str(tmp_path / "none"), "", {})


def test_an_unreachable_cluster_is_a_one_line_error(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(JOBS)
    path = write(folder / "config", "http://127.0.0.1:1", {"token": TOKEN})
    said = detent("apply", "--host", "kubernetes", "--kubeconfig", str(path), "--image", IMAGE)
    assert said.code == 1 and "does not answer" in said.err and "Traceback" not in said.err


def test_render_prints_the_objects_and_asks_no_cluster(
    detent: Detent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / "detent.yaml").write_text(JOBS)
    words = ("--host", "kubernetes", "--image", IMAGE, "--namespace", "shop", "--render")
    said = detent("apply", *words)
    assert said.code == 0, said.err
    objects = list(yaml.safe_load_all(said.out))
    assert [(one["kind"], one["metadata"]["namespace"]) for one in objects] == [
        ("ConfigMap", "shop"),
        ("CronJob", "shop"),
    ]
    assert "unexpected argument: --render" in detent("drift", *words).err
