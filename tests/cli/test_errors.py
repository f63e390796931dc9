"""Every error is reported in one line, without a traceback."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.cli_world import MANIFEST, Detent, call, command, environment

from detent.cli import main as cli
from detent.stores.sqlite.store import SqliteStore


def _corrupt(folder: Path) -> None:
    (folder / "try.db").write_bytes(b"this is not a database, whatever its name says" * 100)


def _foreign(folder: Path) -> None:
    db = sqlite3.connect(folder / "try.db")
    db.execute("CREATE TABLE other (a)")
    db.close()


def _link(folder: Path) -> None:
    (folder / "try.db").symlink_to("elsewhere.db")


STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory": (lambda folder: (folder / "try.db").mkdir(), "is not a file"),
    "corrupt": (_corrupt, "damaged"),
    "of another program": (_foreign, "belongs to another program"),
    "a symbolic link": (_link, "symbolic link"),
    "a pipe": (lambda folder: os.mkfifo(folder / "try.db"), "is not a file"),
}
VERBS = (
    *(["history"], ["list"], ["logs", "backup"], ["kill", "backup"], ["fire", "backup"]),
    *(["status"], ["nodes"], ["prune"], ["why", "backup", "02:30"]),
    *(["pause", "backup"], ["resume", "backup"]),
)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
@pytest.mark.parametrize("what", STORES)
def test_a_store_that_cannot_be_used_is_explained(
    detent: Detent, folder: Path, what: str, words: list[str]
) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    spoil, message = STORES[what]
    spoil(folder)
    said = detent(*words)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("detent: ") and message in said.err


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "an empty directory": (lambda folder: (folder / "m.yaml").mkdir(), "no manifest in"),
    "missing": (lambda folder: None, "no such file"),
    "not text": (lambda folder: (folder / "m.yaml").write_bytes(b"\xff\xfe\x00"), "not UTF-8"),
    "empty": (lambda folder: (folder / "m.yaml").touch(), "a manifest is a mapping"),
    "not YAML": (lambda folder: (folder / "m.yaml").write_text("{"), "this is not YAML"),
    "wrong": (lambda folder: (folder / "m.yaml").write_text("version: 2"), "missing key"),
}
READERS = (
    ["validate", "-f", "m.yaml"],
    ["show", "-f", "m.yaml"],
    *([*words, "--file", "m.yaml"] for words in (["next"], *VERBS)),
)


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
@pytest.mark.parametrize("what", FILES)
def test_a_file_that_cannot_be_used_is_explained(
    detent: Detent, folder: Path, what: str, words: list[str]
) -> None:
    spoil, message = FILES[what]
    spoil(folder)
    said = detent(*words)
    assert (said.code, said.out) == (1, "")
    assert message in said.err and "m.yaml" in said.err


@pytest.mark.parametrize(
    "words", (["validate"], ["next"], ["list"], ["fire", "x"]), ids=lambda words: words[0]
)
def test_without_a_manifest_the_error_names_the_default_files(detent: Detent, words: list[str]) -> None:
    said = detent(*words)
    assert said.code == 1
    assert "no manifest here: there is no detent.yaml" in said.err


@pytest.mark.parametrize("url", ["mysql://:secret@host", "sqlite:", "nonsense", "sqlite:///"])
def test_a_bad_store_url_is_refused_without_its_password(detent: Detent, url: str) -> None:
    said = detent("history", "--store", url)
    assert said.code == 1
    assert "bad store" in said.err and "secret" not in said.err


def test_an_unexpected_error_is_one_line_too(detent: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(verb: str) -> object:
        raise LookupError("a thing")

    monkeypatch.setattr(cli, "build_parser", break_down)
    said = detent("version")
    assert said.code == 1
    assert said.err.startswith("detent: LookupError: a thing (") and said.err.count("\n") == 1


def test_odd_words_in_a_real_process_show_no_traceback(folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    _corrupt(folder)
    bad = "\udcff"
    for words in (["history"], ["run"], ["validate", "-f", bad], ["next", bad], [bad], ["logs", ""]):
        said = call(folder, *words)
        assert said.code in (1, 2), words
        assert said.err and "Traceback" not in said.err, words


def test_a_full_disk_for_the_answer_is_an_error(folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("schema"), cwd=folder, env=environment(folder), stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr == b"detent: No space left on device\n"


@pytest.mark.parametrize("verb", [["status"], ["run"], ["history"], ["doctor"], ["prune"]])
def test_an_empty_store_is_refused_by_every_verb(tmp_path: Path, verb: list[str]) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    for said in (call(tmp_path, *verb, "--store", ""), call(tmp_path, *verb, DETENT_STORE="")):
        assert said.code in (1, 2)
        assert "is empty: name a store" in said.err
    assert not (tmp_path / "state").exists() and not (tmp_path / "try.db").exists()


@pytest.mark.parametrize("words", [["--store", ""], ["--store="]])
def test_an_empty_store_is_refused_by_a_trigger(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    trigger = ["trigger", "-f", "detent.yaml", "demo.money"]
    for said in (call(tmp_path, *trigger, *words), call(tmp_path, *trigger, DETENT_STORE="")):
        assert (said.code, "is empty: name a store" in said.err) == (3, True)


@pytest.mark.parametrize("verb", [["run"], ["status"], ["prune"]])
def test_a_store_without_permission_is_refused_at_once(tmp_path: Path, verb: list[str]) -> None:
    closed = tmp_path / "closed"
    (tmp_path / "detent.yaml").write_text(MANIFEST.replace("try.db", "closed/try.db"))
    closed.mkdir()
    with closing(SqliteStore(closed / "try.db")) as store:
        store.look("demo")
    (closed / "try.db").chmod(0o400)
    words = [*_without_privilege(), *command(*verb)]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert f'may not write "{closed / "try.db"}"; run as its owner' in done.stderr.decode()


def _without_privilege() -> list[str]:
    """Permissions do not restrict root unless it drops the capabilities."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv, as it runs as root")
    given_up = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={given_up}", f"--inh-caps={given_up}"]
