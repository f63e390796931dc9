"""CronJobs of Kubernetes as jobs, rule by rule."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from detent.formats.base import Converted
from detent.formats.kubernetes.convert import convert_kubernetes
from detent.loading.foreign import convert_file, read_documents
from detent.manifest.check import check_manifest
from detent.manifest.problems import ManifestError
from detent.model import Command

CONTAINER = {"name": "c", "command": ["/bin/x"]}


def cron_job(
    spec: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A CronJob that needs no warning, with these fields over it."""
    pod_spec = {"containers": [{**CONTAINER, **(container or {})}], "restartPolicy": "Never", **(pod or {})}
    job_spec = {"backoffLimit": 0, "template": {"spec": pod_spec}, **(job or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "x", **(metadata or {})},
        "spec": {
            "schedule": "0 2 * * *",
            "timeZone": "UTC",
            "jobTemplate": {"spec": job_spec},
            **(spec or {}),
        },
    }


def convert(*documents: Any) -> Converted:
    converted = convert_kubernetes(documents, {})
    check_manifest(converted.document)
    return converted


def made(**parts: dict[str, Any]) -> dict[str, Any]:
    job = convert(cron_job(**parts)).document["jobs"][0]
    assert isinstance(job, dict)
    return job


def notes_of(converted: Converted) -> list[str]:
    return [f"{warning.path}: {warning.message}" for warning in converted.warnings]


def test_a_plain_cron_job_needs_no_warning() -> None:
    converted = convert(cron_job())
    assert converted.warnings == ()
    assert converted.document["jobs"] == [
        {"name": "x", "schedule": "0 2 * * *", "command": ["/bin/x"], "policy": {"concurrency": "Allow"}}
    ]


@pytest.mark.parametrize(
    ("spec", "schedule", "timezone"),
    [
        ({"schedule": "*/5 * * * *"}, "*/5 * * * *", None),
        ({"schedule": "@daily", "timeZone": "Asia/Tokyo"}, "@daily", "Asia/Tokyo"),
        ({"schedule": "CRON_TZ=Asia/Tokyo 0 9 * * *", "timeZone": None}, "0 9 * * *", "Asia/Tokyo"),
        ({"schedule": "TZ=UTC 0 9 * * *", "timeZone": None}, "0 9 * * *", None),
        ({"schedule": "@every 1.5h"}, "@every 1h30m", None),
        ({"schedule": "@every 90s"}, "@every 1m30s", None),
        ({"schedule": "0 0 */2 * 1"}, "0 0 1-31/2 * 1", None),
        ({"schedule": "0 0 1 * */2"}, "0 0 1 * 0-6/2", None),
        ({"schedule": "0 0 */2 * *"}, "0 0 */2 * *", None),
        ({"schedule": "0 0 */1 * 1"}, "0 0 */1 * 1", None),
    ],
)
def test_a_schedule_is_read_as_the_controller_reads_it(
    spec: dict[str, Any], schedule: str, timezone: str | None
) -> None:
    job = made(spec=spec)
    assert (job["schedule"], job.get("timezone")) == (schedule, timezone)


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"schedule": "61 * * * *"}, "spec/schedule", "minute 61"),
        ({"schedule": "0 0 L * *"}, "spec/schedule", "version 2"),
        ({"schedule": "* * * * * *"}, "spec/schedule", "6 fields"),
        ({"schedule": "@every soon"}, "spec/schedule", "1h30m"),
        ({"schedule": None}, "spec/schedule", "bad schedule"),
        ({"timeZone": "Mars/Base"}, "spec/timeZone", "no such IANA name"),
        ({"concurrencyPolicy": "Sometimes"}, "spec/concurrencyPolicy", "Allow, Forbid, Replace"),
        ({"startingDeadlineSeconds": -5}, "spec/startingDeadlineSeconds", "0 or more"),
        (
            {"jobTemplate": {}},
            "spec/jobTemplate/spec/template/spec/containers",
            "list of containers is missing",
        ),
    ],
)
def test_an_object_that_the_cluster_refuses_is_refused(spec: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(ManifestError) as caught:
        convert_kubernetes([cron_job(spec=spec)], {})
    (problem,) = caught.value.problems
    assert problem.path == path and words in problem.message


@pytest.mark.parametrize("field", ["command", "args", "env", "envFrom"])
def test_a_text_where_a_list_must_be_is_refused(field: str) -> None:
    with pytest.raises(ManifestError, match=f'"x" is not a list at .*containers.0..{field}'):
        convert_kubernetes([cron_job(container={field: "x"})], {})


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ManifestError) as caught:
        convert_kubernetes([cron_job(spec={"schedule": "x"}), cron_job(spec={"timeZone": "y"})], {})
    assert [problem.path for problem in caught.value.problems] == ["spec/schedule", "spec/timeZone"]


def retries(attempts: int) -> dict[str, int]:
    return {"max_attempts": attempts, "min_seconds": 10, "max_seconds": 360}


@pytest.mark.parametrize(
    ("parts", "policy"),
    [
        ({"spec": {"concurrencyPolicy": "Forbid"}}, {"concurrency": "Forbid"}),
        ({"spec": {"concurrencyPolicy": "Replace"}}, {"concurrency": "Replace"}),
        ({"job": {"backoffLimit": None}}, {"retries": retries(7)}),
        ({"job": {"backoffLimit": 2}}, {"retries": retries(3)}),
        ({"job": {"backoffLimit": 5000}}, {"retries": retries(1000)}),
        ({"job": {"activeDeadlineSeconds": 60}}, {"timeout_seconds": 60}),
        (
            {"pod": {"activeDeadlineSeconds": 50}, "job": {"activeDeadlineSeconds": 60}},
            {"timeout_seconds": 50},
        ),
        ({"job": {"activeDeadlineSeconds": 800_000}}, {"timeout_seconds": None}),
        ({"spec": {"startingDeadlineSeconds": 200}}, {"start_deadline_seconds": 200}),
    ],
)
def test_a_field_becomes_policy(parts: dict[str, Any], policy: dict[str, Any]) -> None:
    found = made(**parts)["policy"]
    assert {name: found.get(name) for name in policy} == policy


@pytest.mark.parametrize(
    ("parts", "fields"),
    [
        ({"spec": {"suspend": True}}, {"enabled": False}),
        ({"spec": {"suspend": False}}, {"enabled": None}),
        ({"container": {"workingDir": "/srv"}}, {"work_dir": "/srv"}),
        ({"container": {"args": ["-a", "b c"]}}, {"command": ["/bin/x", "-a", "b c"]}),
        ({"container": {"args": ["${B}", "$B"]}}, {"command": ["/bin/x", "$${B}", "$B"]}),
        ({"container": {"env": [{"name": "A", "value": "1"}]}}, {"env": {"A": "1"}}),
        ({"container": {"env": [{"name": "A", "value": "${B}"}]}}, {"env": {"A": "$${B}"}}),
        ({"pod": {"terminationGracePeriodSeconds": 5}}, {"kill_after_seconds": 5}),
        ({"pod": {"terminationGracePeriodSeconds": 30}}, {"kill_after_seconds": None}),
        ({"metadata": {"labels": {"team": "data"}}}, {"tags": ["team=data"]}),
    ],
)
def test_a_field_becomes_a_field(parts: dict[str, Any], fields: dict[str, Any]) -> None:
    found = made(**parts)
    assert {name: found.get(name) for name in fields} == fields


SECRET = {"secretKeyRef": {"name": "api", "key": "token"}}


@pytest.mark.parametrize(
    ("variables", "argument", "given", "output"),
    [
        ([{"name": "A", "value": "1 2"}], "$(A)-$(A)", {}, "<1 2-1 2>"),
        ([{"name": "A", "value": "1"}], "$$(A) $$ $A $(B)", {}, "<$(A) $ $A $(B)>"),
        ([{"name": "A", "valueFrom": SECRET}], "it's $(A)!", {"A": "* s"}, "<it's * s!>"),
        (
            [{"name": "A", "valueFrom": SECRET}, {"name": "B", "value": "b:$(A)"}],
            "$(B)",
            {"A": "* s"},
            "<b:* s>",
        ),
        ([{"name": "B", "value": "$(A)"}, {"name": "A", "value": "late"}], "$(B)", {}, "<$(A)>"),
    ],
)
def test_references_to_variables_are_filled_in_as_the_cluster_does(
    variables: list[dict[str, Any]], argument: str, given: dict[str, str], output: str
) -> None:
    container = {"command": ["/usr/bin/printf", "<%s>"], "args": [argument], "env": variables}
    document = convert(cron_job(container=container)).document
    assert "* s" not in str(document)
    (job,) = check_manifest(document).jobs
    assert isinstance(job.work, Command)
    environment = {**given, **dict(job.work.env)}
    ended = subprocess.run(job.work.words, env=environment, capture_output=True, text=True, timeout=30)
    assert ended.stdout == output


def test_a_variable_made_of_a_secret_reaches_the_command() -> None:
    variables = [{"name": "A", "valueFrom": SECRET}, {"name": "URL", "value": "https://u:$(A)@h"}]
    container = {"command": ["/usr/bin/printenv", "URL"], "env": variables}
    (job,) = check_manifest(convert(cron_job(container=container)).document).jobs
    assert isinstance(job.work, Command)
    ended = subprocess.run(job.work.words, env={"A": "s3"}, capture_output=True, text=True, timeout=30)
    assert ended.stdout == "https://u:s3@h\n"


@pytest.mark.parametrize(
    ("parts", "path", "words"),
    [
        ({"spec": {"timeZone": None}}, "spec/timeZone", "UTC is assumed"),
        ({"spec": {"failedJobsHistoryLimit": 1}}, "spec/failedJobsHistoryLimit", "keep_fires"),
        ({"spec": {"successfulJobsHistoryLimit": 0}}, "spec/successfulJobsHistoryLimit", "keep_fires"),
        ({"spec": {"mystery": 1}}, "spec/mystery", "no equivalent"),
        ({"job": {"parallelism": 3}}, "spec/jobTemplate/spec/parallelism", "once"),
        ({"job": {"completions": 3}}, "spec/jobTemplate/spec/completions", "once"),
        (
            {"job": {"ttlSecondsAfterFinished": 9}},
            "spec/jobTemplate/spec/ttlSecondsAfterFinished",
            "keep_days",
        ),
        ({"pod": {"volumes": [{"name": "v"}]}}, "volumes", "copy them there"),
        ({"pod": {"serviceAccountName": "robot"}}, "serviceAccountName", "credentials"),
        ({"pod": {"nodeSelector": {"a": "b"}}}, "nodeSelector", "`queue`"),
        ({"pod": {"affinity": {"a": "b"}}}, "affinity", "`queue`"),
        ({"pod": {"hostNetwork": True}}, "hostNetwork", "no equivalent"),
        ({"container": {"image": "example/x"}}, "containers/0/image", "install the program"),
        (
            {"container": {"resources": {"limits": {"cpu": 1}}}},
            "containers/0/resources",
            "limits of the node",
        ),
        ({"container": {"volumeMounts": [{"name": "v"}]}}, "containers/0/volumeMounts", "paths"),
        (
            {"container": {"env": [{"name": "A", "valueFrom": SECRET}]}},
            "env/0",
            "set A in the node's environment",
        ),
        ({"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}, "envFrom/0", "secretRef s"),
        ({"container": {"env": [{"name": "a.b", "value": "1"}]}}, "env/0", "ignored"),
        ({"metadata": {"annotations": {"a/b": "c"}}}, "metadata/annotations", "a/b"),
        ({"metadata": {"name": "7.Up"}}, "metadata/name", "becomes job-7-up"),
    ],
)
def test_a_setting_without_an_equivalent_is_reported(parts: dict[str, Any], path: str, words: str) -> None:
    (warning,) = convert(cron_job(**parts)).warnings
    assert warning.path.endswith(path) and words in warning.message


@pytest.mark.parametrize(
    "parts",
    [
        {"container": {"command": None, "image": "example/${TAG}"}},
        {"container": {"command": None, "args": ["-v"]}},
        {"pod": {"initContainers": [{"name": "first"}]}},
        {"pod": {"containers": [CONTAINER, {"name": "proxy"}]}},
    ],
)
def test_a_job_without_a_part_of_its_work_is_disabled(parts: dict[str, Any]) -> None:
    converted = convert(cron_job(**parts))
    assert converted.document["jobs"][0]["enabled"] is False
    assert any("disabled" in line for line in notes_of(converted))


def test_defaults_of_the_cluster_are_not_reported() -> None:
    container = {"imagePullPolicy": "Always", "resources": {}, "terminationMessagePolicy": "File"}
    pod = {"dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler"}
    job = {"completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "suspend": False}
    assert convert(cron_job(container=container, pod=pod, job=job)).warnings == ()


@pytest.mark.parametrize(
    ("namespaces", "app"),
    [(["shop", "shop"], "shop"), (["a", "b"], "default"), ([], "default"), (["9x"], "default")],
)
def test_the_app_is_the_one_namespace(namespaces: list[str], app: str) -> None:
    documents = [cron_job(metadata={"namespace": name}) for name in namespaces] or [cron_job()]
    assert convert(*documents).document["app"] == app


def test_names_that_are_taken_get_a_number_and_a_warning() -> None:
    converted = convert(cron_job(), cron_job())
    assert [job["name"] for job in converted.document["jobs"]] == ["x", "x-2"]
    assert 'metadata/name: "x" becomes x-2' in notes_of(converted)[0]


def test_lists_are_expanded_empty_documents_ignored_and_other_kinds_reported() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    converted = convert({"apiVersion": "v1", "kind": "List", "items": [cron_job(), service]}, None)
    assert len(converted.document["jobs"]) == 1
    assert notes_of(converted) == ["kind: Service web: it is not a CronJob; it is ignored"]


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "no CronJob"),
        (["text"], "not an object"),
        ([{**cron_job(), "apiVersion": "batch/v2"}], "batch/v2"),
    ],
)
def test_a_file_without_cron_jobs_is_refused(documents: list[Any], words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        convert_kubernetes(documents, {})


TWO = "# first\n---\napiVersion: v1\nkind: Secret\n--- # second\napiVersion: batch/v1\nkind: CronJob\n"


def test_the_lines_of_a_file_with_several_documents_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    documents, lines = read_documents(file)
    assert [document and document["kind"] for document in documents] == [None, "Secret", "CronJob"]
    assert (lines["1/kind"], lines["2/kind"]) == (4, 7)
    with pytest.raises(ManifestError) as caught:
        convert_file(file, {})
    assert {problem.line for problem in caught.value.problems} == {5}


def test_a_broken_document_is_reported_with_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO + "kind: twice\n")
    with pytest.raises(ManifestError, match=r"two\.yaml:8"):
        read_documents(file)
