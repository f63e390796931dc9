"""The host kubernetes keeps the rules of hosts on a server that speaks HTTP; its objects are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import example, given
from hypothesis import settings as settings_
from hypothesis import strategies as st
from tests.equipment.api_server import Objects, api_server
from tests.hosts.hosts_world import settings
from tests.hosts.kubernetes_world import IMAGE, kubernetes_world
from tests.hosts.schedule_texts import PATIENT

from detent.errors import HostError
from detent.hosts.kubernetes import objects as kubernetes_objects
from detent.hosts.kubernetes.cluster import Cluster
from detent.hosts.reconcile import pending, reconcile
from detent.hosts.registry import open_host
from detent.manifest.check import check_manifest
from detent.manifest.spec import Spec, specs_of
from detent.testing import check_host as suite
from detent.testing.check_host import CHECKS, Check, run_check

DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
Server = tuple[Objects, Path]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with api_server(tmp_path) as found:
        yield found


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_a_cluster_keeps_a_rule_of_hosts(check: Check, tmp_path: Path, server: Server) -> None:
    run_check(check, kubernetes_world(tmp_path, *server))


# The suite finds each planted bug by the rule that it breaks.


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("what others added stays", suite.a_manual_edit_is_drift_and_is_repaired),
        ("defaults count as edits", suite.applied_resources_are_found_unchanged),
        ("no field has an owner", suite.applied_resources_are_found_unchanged),
        ("a name is cut without a hash", suite.the_longest_names_stay_distinct),
        ("only the first page is read", suite.a_second_apply_changes_nothing),
    ],
)
def test_a_planted_fault_is_found(
    fault: str, rule: Check, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, fault)
    with pytest.raises((AssertionError, HostError)):
        run_check(rule, kubernetes_world(tmp_path, *server))


def plant(patch: pytest.MonkeyPatch, fault: str) -> None:
    match fault:
        case "what others added stays":
            patch.setattr(Cluster, "replace", lambda cluster, wanted: wanted)
        case "defaults count as edits":
            patch.setattr(kubernetes_objects, "_chosen", lambda value, sets: value)
        case "no field has an owner":
            patch.setattr(kubernetes_objects, "own_entries", lambda entries: [])
        case "a name is cut without a hash":
            patch.setattr(kubernetes_objects, "resource_name", lambda job, index, most: f"detent-{job}"[:40])
        case "only the first page is read":
            call = Cluster._call

            def first_page(cluster: Cluster, method: str, *given: Any) -> Any:
                answer = call(cluster, method, *given)
                return {**answer, "metadata": {}} if method == "GET" else answer

            patch.setattr(Cluster, "_call", first_page)


# What the suite does not know of.


def spec_of(**job: Any) -> list[Spec]:
    made = {"name": "backup", "schedule": "30 2 * * *", "command": "true", **job}
    return specs_of(check_manifest({"version": 2, "app": "shop", "store": "redis://r", "jobs": [made]}))


def rendered(folder: Path, specs: list[Spec], **options: str) -> list[Any]:
    host = open_host("kubernetes", settings(folder, "shop", render=True, **{"image": IMAGE, **options}))
    return [yaml.safe_load(one.content) for one in host.render(specs)]


def test_two_machines_that_apply_do_not_overwrite_each_other(tmp_path: Path, server: Server) -> None:
    world = kubernetes_world(tmp_path, *server)
    document = suite.manifest_of("shop", backup="30 2 * * *")
    suite.apply(world, document)
    changed = suite.manifest_of("shop", backup="45 2 * * *")
    one, other = world.open("shop"), world.open("shop")  # neither waits for the other's lock
    changes = [pending(suite.standing(host, changed)) for host in (one, other)]
    one.change(changes[0])
    after = dict(world.look())
    with pytest.raises(HostError, match="it was changed at the same time"):
        other.change(changes[1])
    assert world.look() == after


def test_deleting_a_missing_resource_succeeds(tmp_path: Path, server: Server) -> None:
    world = kubernetes_world(tmp_path, *server)
    suite.apply(world, suite.manifest_of("shop", backup="30 2 * * *"))
    host = world.open("shop")
    changes = pending(reconcile("shop", [], host.find()))
    host.change(changes)
    host.change(changes)
    assert world.look() == {}


@pytest.mark.parametrize("version", ["1.27", "1.29", "1.33"])
def test_every_object_is_valid_and_as_restricted_as_a_cluster_can_ask_for(
    tmp_path: Path, version: str
) -> None:
    policy = {"catch_up": "skip", "start_deadline_seconds": 900, "timeout_seconds": 30}
    specs = spec_of(timezone="Europe/Berlin", policy=policy)
    objects = rendered(tmp_path, specs, cpu="2000m", memory="1024Mi", service_account="shop")
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)
    configmap, cronjob, around = objects
    assert (configmap["kind"], cronjob["kind"], around["kind"]) == ("ConfigMap", "CronJob", "CronJob")
    spec = cronjob["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("30 2 * * *", "Europe/Berlin")
    assert spec["concurrencyPolicy"] == "Allow" and spec["startingDeadlineSeconds"] == 60
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 600 + 30
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "--contended-ok" in container["args"]
    amounts = {"cpu": "2", "memory": "1Gi"}
    assert container["resources"] == {"requests": amounts, "limits": {"memory": "1Gi"}}


def test_secrets_are_referred_to_and_never_written(tmp_path: Path) -> None:
    work = {"request": {"url": "https://example.org"}, "auth": {"secret_refs": ["env:SHOP_KEY"]}}
    made = {"name": "backup", "schedule": "@daily", **work}
    document = {"version": 2, "app": "shop", "store": "redis://me:hunter2@r", "jobs": [made]}
    objects = rendered(tmp_path, specs_of(check_manifest(document)), store_secret="stores:main")
    assert "hunter2" not in str(objects)
    env = {one["name"]: one for one in container_of(objects[1])["env"]}
    assert env["SHOP_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "detent-shop", "key": "SHOP_KEY"}
    assert env["DETENT_STORE"]["valueFrom"]["secretKeyRef"] == {"name": "stores", "key": "main"}


def container_of(cronjob: Any) -> Any:
    return cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
ODD = st.one_of(
    TEXTS, st.sampled_from(["---\nkind: Pod", "$(HOME)", "a\x7f\x85b\u2028", "%s # x", "{{ y }}", "<&>"])
)


@example(app="pay-", job="a--", text="", more="")
@example(app="p" + "-" * 62, job="a", text="", more="")
@settings_(PATIENT, max_examples=15)
@given(app=NAMES, job=NAMES, text=ODD, more=ODD)
def test_whatever_a_job_contains_exactly_our_objects_come_back(
    app: str, job: str, text: str, more: str
) -> None:
    escaped = text.replace("$", "$$")
    made = {
        "name": job,
        "schedule": "@daily",
        "command": ["echo", escaped],
        "env": {"ODD": more.replace("$", "$$")},
    }
    document = {"version": 2, "app": app, "store": "redis://$$(HOME)$$x", "jobs": [made]}
    specs = specs_of(check_manifest(document))
    host = open_host("kubernetes", settings(Path("/nowhere"), app, render=True, image=IMAGE))
    stream = "\n".join(f"---\n{one.content}" for one in host.render(specs))
    configmap, cronjob = list(yaml.safe_load_all(stream))
    [(name, spec)] = configmap["data"].items()
    assert name == f"{app}.{job}.json"
    [loaded] = check_manifest(json.loads(spec)).jobs
    assert loaded.work.words == ("echo", text) and loaded.revision == specs[0].revision
    for one, longest in ((configmap, 253), (cronjob, 52)):
        assert len(one["metadata"]["name"]) <= longest and DNS.fullmatch(one["metadata"]["name"])
        assert one["metadata"]["annotations"]["detent/job"] == f"{app}.{job}"
        assert all(LABEL.fullmatch(value) for value in one["metadata"]["labels"].values())
    store = next(one for one in container_of(cronjob)["env"] if one["name"] == "DETENT_STORE")
    assert store["value"] == "redis://$$(HOME)$$x"  # a cluster would fill in $(HOME)
