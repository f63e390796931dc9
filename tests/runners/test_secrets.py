"""Resolving secrets: from the environment, from files, from the reference itself."""

import os
from pathlib import Path

import pytest

from detent.manifest.secret_refs import display_ref
from detent.runners.secrets import FILE_MAX, resolve
from detent.text import quote


def keys(
    refs: list[str], table: dict[str, str] | None = None, env: dict[str, str] | None = None
) -> list[bytes]:
    return [secret.key() for secret in resolve(refs, table or {}, env or {}).secrets]


def test_each_kind_of_reference_resolves_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("  from file\n\n")
    refs = [f"file:{tmp_path}/key", "env:A", "raw:literal", "named", "B"]
    found = keys(refs, {"named": "raw:from table"}, {"A": " from env ", "B": "bare-name"})
    assert found == [b"from file", b" from env ", b"literal", b"from table", b"bare-name"]


def test_the_table_wins_over_the_environment() -> None:
    assert keys(["NAME"], {"NAME": "the-table"}, {"NAME": "environment"}) == [b"the-table"]


def test_a_table_leads_on_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("deep-down")
    assert keys(["main"], {"main": f"file:{tmp_path}/key"}) == [b"deep-down"]


def test_a_link_to_a_file_is_followed_because_mounted_secrets_are_links(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("linked-to")
    (tmp_path / "key").symlink_to("data")
    assert keys([f"file:{tmp_path}/key"]) == [b"linked-to"]


SHORT = "it has fewer than 8 bytes: use a long random text (openssl rand -hex 32)"
UNRESOLVED = {
    "env:NOT_SET": "the environment variable NOT_SET is not set",
    "env:": '"env:" names no variable',
    "env:EMPTY": "the environment variable EMPTY is empty",
    "env:BYTES": "the environment variable BYTES is not UTF-8 text",
    "env:SHORT": SHORT,
    "file:{dir}/short": SHORT,
    "bare": "the environment variable bare is not set",
    "raw:": "it is empty",
    "file:relative/key": '"file:" needs a path that starts with /',
    "file:{dir}/none": "cannot read {dir}/none: No such file or directory",
    "file:{dir}": "cannot read {dir}: Is a directory",
    "file:{dir}/pipe": "{dir}/pipe is not a regular file",
    "file:{dir}/blank": "{dir}/blank is empty",
    "file:{dir}/bytes": "{dir}/bytes is not UTF-8 text",
    "file:{dir}/long": "{dir}/long is longer than 65536 bytes",
    "file:/\0": r'"/\u0000" is not a path',
}


@pytest.mark.parametrize(("ref", "why"), UNRESOLVED.items())
def test_a_reference_that_cannot_be_resolved_is_skipped_with_a_warning(
    ref: str, why: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "blank").write_text(" \n")
    (tmp_path / "short").write_text("1234567\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"x" * (FILE_MAX + 1))
    ref, why = ref.format(dir=tmp_path), why.format(dir=tmp_path)
    env = {"GOOD": "long-enough", "EMPTY": "", "SHORT": "x", "BYTES": "\udcff"}
    resolved = resolve([ref, "env:GOOD"], {}, env)
    assert [secret.key() for secret in resolved.secrets] == [b"long-enough"]
    assert resolved.warnings == (f"secret {quote(display_ref(ref))} is skipped: {why}",)


def test_a_short_text_in_the_table_is_refused_and_a_raw_one_of_a_test_vector_is_not() -> None:
    assert keys(["a", "b", "raw:x"], {"a": "hunter2", "b": "raw:hunter2"}) == [b"hunter2", b"x"]
    assert resolve(["a"], {"a": "hunter2"}, {}).warnings == (f'secret "a" is skipped: {SHORT}',)


def test_no_warning_and_no_repr_contains_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"hidden\xff")
    table = {"t": "hidden-t", "bad": "hidden\udcff"}
    refs = ["raw:hidden-r", "raw:hidden\udcff", "t", "bad", "env:E", f"file:{tmp_path}/key"]
    resolved = resolve(refs, table, {"E": "hidden\udcfe"})
    assert len(resolved.secrets) == 2
    assert len(resolved.warnings) == 4
    assert "hidden" not in repr(resolved)
