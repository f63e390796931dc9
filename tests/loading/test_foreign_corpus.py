"""A corpus of crontabs and cronlock files: each loads as it is, is shown by `next`, and round-trips.

Beside a file, NAME.warnings has every warning that it must give, as `line: ` and how the message begins;
a file without one gives none.  A crontab's form is the word before its ending.
"""

from pathlib import Path

import pytest

from detent.cli.main import main
from detent.loading.config import load_manifest
from detent.loading.foreign import CrontabPath
from detent.manifest.check import Manifest

CORPUS = Path(__file__).parents[1] / "corpus"
CRONTABS = sorted((CORPUS / "crontab").glob("*.crontab"))
CRONLOCKS = sorted(path for path in (CORPUS / "cronlock").iterdir() if path.suffix in (".yaml", ".toml"))
FORMATS = ("yaml", "toml", "json")
VARIABLES = {"TZ": "Europe/Berlin", "HOME": "/", "TEAM": "ops"}  # all that the files may know of
FROM = "2026-01-01T00:00Z"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SHELL", "DETENT_CONFIG", "DETENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def path_of(file: Path) -> Path:
    return CrontabPath(f"{file.name.split('.')[1]}:{file}") if file.suffix == ".crontab" else file


def words_for(file: Path) -> list[str]:
    return ["--crontab" if file.suffix == ".crontab" else "--file", str(path_of(file))]


@pytest.fixture(autouse=True)
def no_redis_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file means depends on whether a Redis answers at its address."""
    monkeypatch.setattr("detent.loading.foreign._is_redis", lambda address: False)


def expected_warnings(file: Path) -> list[str]:
    sidecar = file.with_name(file.name + ".warnings")
    return sidecar.read_text().splitlines() if sidecar.exists() else []


def said(manifest: Manifest) -> tuple[object, ...]:
    """All that a manifest means."""
    return manifest.app, manifest.canonical, manifest.machine, manifest.disabled, manifest.everywhere


def test_the_corpus_is_there() -> None:
    assert len(CRONTABS) >= 14 and len(CRONLOCKS) >= 8


@pytest.mark.parametrize("file", CRONTABS + CRONLOCKS, ids=lambda file: file.name)
def test_a_file_loads_as_it_is_and_every_warning_is_expected(file: Path) -> None:
    manifest = load_manifest(path_of(file), VARIABLES)
    warnings = [f"{warning.line}: {warning.message}" for warning in manifest.warnings]
    expected = expected_warnings(file)
    assert len(warnings) == len(expected), warnings
    for text, start in zip(warnings, expected, strict=True):
        assert text.startswith(start)
    assert all(warning.code for warning in manifest.warnings)


@pytest.mark.parametrize("file", CRONTABS + CRONLOCKS, ids=lambda file: file.name)
def test_next_shows_the_instants_of_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", *words_for(file), "--from", FROM, "-n", "3"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    app = load_manifest(path_of(file), VARIABLES).app
    assert len(rows) == 3 and all(f"{app}." in row for row in rows)


@pytest.mark.parametrize("file", CRONTABS + CRONLOCKS, ids=lambda file: file.name)
def test_a_converted_file_means_the_same(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_it_is = load_manifest(path_of(file), VARIABLES)
    named = words_for(file) if file.suffix == ".crontab" else [str(file)]
    for format in FORMATS:
        assert main(["convert", *named, "--to", format]) == 0
        made, converted = tmp_path / f"made.{format}", capsys.readouterr()
        made.write_text(converted.out)
        assert said(load_manifest(made, VARIABLES)) == said(as_it_is)
        assert converted.err.count("warning: ") == len(as_it_is.warnings)
        assert "not-to-be-seen" not in converted.out + converted.err
