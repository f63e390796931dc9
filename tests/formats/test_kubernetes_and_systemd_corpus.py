"""CronJobs and timers as people have them: each converts with the warnings beside it, and what is printed
loads again as the same jobs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from detent.cli.main import main
from detent.loading.config import load_manifest
from detent.loading.foreign import convert_file
from detent.manifest.check import Manifest, canonical_text, check_manifest
from detent.manifest.problems import format_problem
from detent.schedules.timetable import patterns_of

CORPUS = Path(__file__).parents[1] / "corpus"
ENV = {"TZ": "Europe/Berlin", "HOME": "/home/me"}
CASES = sorted(
    [
        *(path for path in (CORPUS / "kubernetes").iterdir() if path.suffix != ".warnings"),
        *(CORPUS / "systemd").glob("*.timer"),
        CORPUS / "systemd" / "instances",
    ]
)
NAMES = [f"{path.parent.name}/{path.name}" for path in CASES]
BASE = datetime(2026, 1, 1, tzinfo=UTC)


def manifest_of(path: Path) -> Manifest:
    converted = convert_file(path, ENV)
    return check_manifest(converted.document, variables=ENV, lines=converted.lines)


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert sum(name.startswith("kubernetes/") for name in NAMES) >= 10
    assert sum(name.startswith("systemd/") for name in NAMES) >= 10


@pytest.mark.parametrize("path", CASES, ids=NAMES)
def test_a_file_converts_with_exactly_the_warnings_beside_it(path: Path) -> None:
    beside = path.with_name(f"{path.name}.warnings")
    expected = beside.read_text().splitlines() if beside.exists() else []
    assert [format_problem(warning) for warning in convert_file(path, ENV).warnings] == expected


@pytest.mark.parametrize("path", CASES, ids=NAMES)
def test_every_job_is_there_and_has_a_next_fire(path: Path) -> None:
    converted = convert_file(path, ENV)
    manifest = manifest_of(path)
    assert len(manifest.jobs) + len(manifest.disabled) == len(converted.document["jobs"]) > 0
    assert len(converted.sources) == len(converted.document["jobs"])
    for job in manifest.jobs:
        assert job.schedule.after(BASE) is not None or not patterns_of(job.schedule)


@pytest.mark.parametrize("path", CASES, ids=NAMES)
@pytest.mark.parametrize("form", ["yaml", "toml", "json"])
def test_rendered_objects_contain_the_same_jobs(
    path: Path, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    assert main(["convert", str(path), "--to", form]) == 0
    printed = tmp_path / f"detent.{form}"
    printed.write_text(capfd.readouterr().out)
    assert canonical_text(load_manifest(printed, ENV)) == canonical_text(manifest_of(path))
    if form == "yaml":
        assert main(["next", "--file", str(printed)]) == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kubernetes/minimal.yaml", "is a Kubernetes object"),
        ("kubernetes/several-documents.yaml", "is a Kubernetes object"),
        ("systemd/backup.timer", "is a systemd unit"),
    ],
)
def test_a_file_that_only_converts_is_not_run_and_says_what_to_do(
    name: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-f", str(CORPUS / name)]) != 0
    said = capfd.readouterr().err
    assert words in said and f"detent convert {CORPUS / name} > detent.yaml" in said


def test_a_service_may_be_given_beside_its_timer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    timer, elsewhere = tmp_path / "a.timer", tmp_path / "units"
    elsewhere.mkdir()
    timer.write_text("[Timer]\nOnCalendar=daily UTC\n")
    (elsewhere / "a.service").write_text("[Service]\nExecStart=/bin/a\n")
    assert main(["convert", str(timer), str(elsewhere / "a.service"), "--to", "json"]) == 0
    said = capfd.readouterr()
    assert '"/bin/a"' in said.out and "warning" not in said.err


def test_a_folder_of_units_is_converted_with_its_drop_ins() -> None:
    jobs = convert_file(CORPUS / "systemd" / "instances", ENV).document["jobs"]
    assert [(job["name"], job.get("user")) for job in jobs] == [("db", None), ("db-orders", "postgres")]
    assert jobs[1]["policy"]["timeout_seconds"] == 1200


def test_further_files_are_for_units_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(CORPUS / "kubernetes" / "minimal.yaml"), "x.service"]) != 0
    assert "only systemd units" in capfd.readouterr().err
