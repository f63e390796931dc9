"""Files: three formats that mean the same, lines and columns, the machine's settings, the store's URL."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.manifest.manifests import manifests

from detent.errors import UsageError
from detent.loading.config import find_manifest, load_machine, load_manifest, store_url
from detent.loading.documents import parse_json, parse_toml, parse_yaml
from detent.loading.files import read_document
from detent.manifest.check import canonical_text, check_manifest
from detent.manifest.problems import ManifestError

YAML = """\
version: 2
app: demo
jobs:
  # one
  - name: a
    schedule: "0 2 * * *"
    command: [echo, hi]
    policy:
      timeout_seconds: 0.5
  - name: b
    schedules:
      - "@daily"
      - "61 * * * *"
    command: |
      several
      lines
    env: {A: yes, B: 010, C: 1:30, D: 2026-01-01, E: off, F: 1_000, G: 0x1F, H: ~}
"""
TOML = """\
version = 2
app = "demo"
[defaults.policy]
on_lost = "rerun"

[[jobs]]
name = "a"
schedule = "0 2 * * *"
command = '''
[not.a.table]
name = "x"
'''
policy.timeout_seconds = 0.5

[[jobs]]
name = "b"  # [jobs.nor.this]
schedules = [
  "@daily",   # "]"
  "61 * * * *",
]
command = [ "a", { b = 1 } ]
[jobs.env]
"A-B" = "x"
"""
JSON = """\
{"version": 2, "app": "demo",
 "jobs": [
  {"name": "a", "schedule": "0 2 * * *",
   "command": "a \\"quoted\\" [text] {",
   "policy": {
     "timeout_seconds": 0.5}},
  {"name": "b",
   "schedules": ["@daily",
                 "61 * * * *"],
   "command": "x", "colour": "red"}
 ]}
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose machine has no settings."""
    empty = tmp_path / "machine.yaml"
    empty.write_text("")
    return {"DETENT_CONFIG": str(empty)}


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def problems(path: Path, env: dict[str, str]) -> list[tuple[str, int]]:
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env)
    assert all(f" ({path}:" in line for line in str(caught.value).splitlines())
    return [(problem.path, problem.line) for problem in caught.value.problems]


def test_problems_of_a_yaml_file_have_their_lines(tmp_path: Path, env: dict[str, str]) -> None:
    path = write(tmp_path / "detent.yaml", YAML)
    assert problems(path, env) == [
        ("jobs/0/policy/timeout_seconds", 9),
        ("jobs/1/schedules/1", 13),
        ("jobs/1/env/H", 17),
    ]


def test_problems_of_a_toml_file_have_their_lines(tmp_path: Path, env: dict[str, str]) -> None:
    path = write(tmp_path / "detent.toml", TOML)
    assert problems(path, env) == [
        ("jobs/0/policy/timeout_seconds", 13),
        ("jobs/1/schedules/1", 19),
        ("jobs/1/command/1", 21),
        ("jobs/1/env/A-B", 23),
    ]


def test_problems_of_a_json_file_have_their_lines(tmp_path: Path, env: dict[str, str]) -> None:
    path = write(tmp_path / "detent.json", JSON)
    assert problems(path, env) == [
        ("jobs/0/policy/timeout_seconds", 6),
        ("jobs/1/schedules/1", 9),
        ("jobs/1/colour", 10),
    ]


def test_a_message_says_what_is_wrong_and_where(
    tmp_path: Path, env: dict[str, str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("detent.yaml"), YAML)
    with pytest.raises(ManifestError) as caught:
        load_manifest(find_manifest(), env)
    message = "0.5 is not a whole number from 0 to 604800"
    where = "jobs[0].policy.timeout_seconds (detent.yaml:9)"
    assert str(caught.value).splitlines()[0] == f"{message} at {where}"


# Ten aliases a level: without a limit these are 10^10 values.
ALIASES = "l0: &l0 [x]\n" + "".join(f"l{n}: &l{n} [{', '.join(10 * [f'*l{n - 1}'])}]\n" for n in range(1, 11))
DEEP_ALIASES = "l0: &l0 [x]\n" + "".join(f"l{n}: &l{n} [*l{n - 1}]\n" for n in range(1, 200))


BROKEN_FILES = [
    ("an unclosed list", "a.yaml", "version: 2\njobs: [\n", 3, "this is not YAML"),
    ("a tab", "a.yaml", "version: 2\n\tapp: x\n", 2, "this is not YAML"),
    ("a key twice", "a.yaml", "version: 2\napp: a\napp: b\n", 3, "duplicate key"),
    ("a merge key", "a.yaml", "version: 2\njobs:\n  - <<: {a: 1}\n", 3, "`defaults`"),
    ("a tag", "a.yaml", "version: 2\napp: !!python/name:os.system x\n", 2, "is not supported"),
    ("an unknown alias", "a.yaml", "version: 2\napp: *nobody\n", 2, "*nobody is not defined"),
    ("an alias of itself", "a.yaml", "version: 2\njobs: &j\n  - *j\n", 3, "*j is not defined"),
    ("a mapping as key", "a.yaml", "version: 2\n? {a: b}\n: c\n", 2, "a key must be a plain text"),
    ("two documents", "a.yaml", "version: 2\n---\nversion: 2\n", 2, "a second one starts here"),
    ("a deep YAML", "a.yaml", "[" * 100_000, 1, "too deep"),
    ("a deep YAML by dashes", "a.yaml", "- " * 101 + "a", 1, "too deep"),
    ("aliases of aliases", "a.yaml", ALIASES, 6, "more than 100,000 values"),
    ("a deep YAML by aliases", "a.yaml", DEEP_ALIASES, 100, "too deep"),
    ("a long number", "a.yaml", "version: " + "1" * 5000, 1, "too many digits"),
    ("a control character", "a.yaml", "version: 2\napp: \x01\n", 0, "this is not YAML"),
    ("Latin-1", "a.yaml", "version: 2\napp: ü".encode("latin-1"), 2, "not UTF-8"),
    ("an unclosed object", "a.json", '{"version": 2,\n', 2, "this is not JSON"),
    ("a comma too many", "a.json", '{\n"version": 2,}', 2, "this is not JSON"),
    ("a comment", "a.json", "// x\n{}", 1, "this is not JSON"),
    ("a JSON key twice", "a.json", '{"version": 2,\n"app": "a",\n"app": "b"}', 3, "duplicate key"),
    ("a deep JSON", "a.json", "[" * 100_000, 0, "too deep"),
    ("a JSON of some depth", "a.json", "[" * 101 + "]" * 101, 0, "too deep"),
    ("a long JSON number", "a.json", '{"version": ' + "1" * 5000 + "}", 0, "too many digits"),
    ("an empty JSON", "a.json", "", 1, "this is not JSON"),
    ("no value", "a.toml", "version = 2\napp =\n", 2, "this is not TOML"),
    ("a TOML key twice", "a.toml", "version = 2\nversion = 1\n", 2, "twice"),
    ("a TOML table twice", "a.toml", "[node]\nid = 'a'\n[node]\n", 3, "twice"),
    ("an open TOML string", "a.toml", 'app = """\nx\n', 3, "this is not TOML"),
    ("a deep TOML", "a.toml", "a = " + "[" * 5000 + "]" * 5000, 0, "too deep"),
    ("an empty YAML", "a.yaml", "", 0, "a manifest is a mapping"),
    ("no version in YAML", "a.yaml", "app: demo\n", 0, 'missing key "version"; write 2'),
    ("no version in TOML", "a.toml", "", 0, 'missing key "version"; write 2'),
    ("on as a key", "a.yaml", "version: 2\napp: demo\non: 5\njobs: []\n", 3, 'unknown key "on"'),
]


@pytest.mark.parametrize(
    ("name", "text", "line", "fragment"),
    [row[1:] for row in BROKEN_FILES],
    ids=[row[0] for row in BROKEN_FILES],
)
def test_a_broken_file_is_refused_at_its_line(
    tmp_path: Path, env: dict[str, str], name: str, text: str | bytes, line: int, fragment: str
) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, env)
    assert any(problem.line == line and fragment in problem.text for problem in caught.value.problems), str(
        caught.value
    )
    assert f"({path}" in str(caught.value)


def test_yaml_words_come_out_as_they_were_written() -> None:
    words = "yes, no, on, off, y, 010, 0x1F, 1_000, 1:30, 2026-01-01, .5, 0o17, .inf, =, 1e5, 0E0"
    assert parse_yaml(f"[{words}]")[0] == words.split(", ")


def test_yaml_numbers_booleans_and_null_are_those_that_every_version_knows() -> None:
    document, _ = parse_yaml('[1, -2, 0, 1.5, 1.0e+3, true, False, null, ~, "1", "true", !!str 5]')
    assert document == [1, -2, 0, 1.5, 1000.0, True, False, None, None, "1", "true", "5"]
    assert [type(item) for item in document[:5]] == [int, int, int, float, float]


def test_an_alias_is_the_value_that_it_names() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: *x\n")[0] == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_date_of_toml_is_a_text_like_in_the_others() -> None:
    assert parse_toml("at = 2026-12-24T18:00:00+01:00\nday = 2026-12-24")[0] == {
        "at": "2026-12-24T18:00:00+01:00",
        "day": "2026-12-24",
    }


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    for name, text in (("a.json", "{}"), ("a.yaml", "{}"), ("a.toml", "")):
        assert read_document(write(tmp_path / name, b"\xef\xbb\xbf" + text.encode()))[0] == {}


def toml(value: Any) -> str:
    """A value as TOML, in one line."""
    assume(value is not None)  # TOML has no word for it
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@given(st.one_of(manifests(version=1), manifests(version=2)))
@settings(max_examples=30, deadline=None)
def test_the_three_formats_give_the_same_manifest(document: dict[str, Any]) -> None:
    texts = [
        parse_json(json.dumps(document, indent=1)),
        parse_toml("".join(f"{name} = {toml(value)}\n" for name, value in document.items())),
        parse_yaml(yaml.safe_dump(document, allow_unicode=True)),
    ]
    forms = {canonical_text(check_manifest(parsed)) for parsed, _ in texts}
    assert len(forms) == 1
    known = [set(lines) for _, lines in texts]
    assert known[0] == known[1] and known[0] >= known[2]  # YAML has no paths below an alias


@given(manifests(version=2))
@settings(max_examples=15, deadline=None)
def test_a_line_is_where_the_key_stands(document: dict[str, Any]) -> None:
    for text, (_, lines) in (
        (json_text := json.dumps(document, indent=1), parse_json(json_text)),
        (yaml_text := yaml.safe_dump(document, allow_unicode=True), parse_yaml(yaml_text)),
    ):
        rows = text.split("\n")
        keys = {
            path: line
            for path, line in lines.items()
            if path.rpartition("/")[2] in ("name", "command", "policy")
        }
        assert keys
        for path, line in keys.items():
            assert path.rpartition("/")[2] in rows[line - 1]


def test_a_file_that_cannot_be_read_has_an_error_with_the_reason(tmp_path: Path, env: dict[str, str]) -> None:
    for path, why in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path / "jobs.ini", "its name must end in .yaml, .yml, .toml or .json"),
        (tmp_path / "folder.json", "is a directory"),
    ):
        (tmp_path / "folder.json").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="cannot read") as caught:
            load_manifest(path, env)
        assert why in str(caught.value)


def test_the_manifest_is_looked_for_in_the_working_directory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"detent\.yaml, detent\.yml, detent\.toml or detent\.json"):
        find_manifest()
    write(tmp_path / "detent.json", "{}")
    assert find_manifest() == Path("detent.json")
    write(tmp_path / "detent.yaml", "{}")
    assert find_manifest() == Path("detent.yaml")
    assert find_manifest("other.toml") == Path("other.toml")


MANIFEST = "version: 2\napp: demo\njobs: [{name: a, schedule: '@daily', command: x}]\n"


def test_the_manifests_settings_override_the_machines(tmp_path: Path) -> None:
    machine = write(tmp_path / "m.toml", "store = 'redis://h'\n[node]\nid = 'm'\nkeep_days = 3\n")
    env = {"DETENT_CONFIG": str(machine)}
    plain = load_manifest(write(tmp_path / "a.yaml", MANIFEST), env)
    assert (plain.store.url, plain.node.id, plain.node.keep_days) == ("redis://h", "m", 3)
    own = load_manifest(write(tmp_path / "b.yaml", MANIFEST + "store: sqlite:///x\nnode: {id: n}\n"), env)
    assert (own.store.url, own.node.id, own.node.keep_days) == ("sqlite:///x", "n", 3)


def test_the_machines_settings_are_checked_with_their_own_file(tmp_path: Path) -> None:
    machine = write(tmp_path / "m.yaml", "node:\n  id: m\n  max_runing: 3\n")
    with pytest.raises(ManifestError) as caught:
        load_manifest(write(tmp_path / "a.yaml", MANIFEST), {"DETENT_CONFIG": str(machine)})
    assert str(caught.value) == (
        f'unknown key "max_runing" at node ({machine}:3): did you mean "max_running"?'
    )
    with pytest.raises(UsageError, match="no such file"):
        load_machine({"DETENT_CONFIG": str(tmp_path / "none.yaml")})


def test_the_store_comes_from_the_flag_the_environment_the_manifest_or_the_machine(tmp_path: Path) -> None:
    machine = write(tmp_path / "m.yaml", "store: redis://machine\n")
    empty = write(tmp_path / "e.yaml", "")
    with_machine = {"DETENT_CONFIG": str(machine)}
    without = {"DETENT_CONFIG": str(empty), "XDG_STATE_HOME": str(tmp_path)}
    own = load_manifest(write(tmp_path / "a.yaml", MANIFEST + "store: sqlite:///own\n"), with_machine)
    bare = load_manifest(write(tmp_path / "b.yaml", MANIFEST), with_machine)
    none = load_manifest(tmp_path / "b.yaml", without)
    assert (
        store_url(own, "sqlite:///flag", {**with_machine, "DETENT_STORE": "sqlite:///env"})
        == "sqlite:///flag"
    )
    assert store_url(own, None, {**with_machine, "DETENT_STORE": "sqlite:///env"}) == "sqlite:///env"
    assert store_url(own, None, with_machine) == "sqlite:///own"
    assert store_url(bare, None, with_machine) == store_url(None, None, with_machine) == "redis://machine"
    assert store_url(none, None, without) == f"sqlite:///{tmp_path}/detent/detent.db"


@pytest.mark.parametrize(
    ("flag", "env", "message"),
    [
        ("", {}, "--store is empty: name a store"),
        (" ", {"DETENT_STORE": "redis://host"}, "--store is empty: name a store"),
        (None, {"DETENT_STORE": ""}, "DETENT_STORE is empty: name a store"),
    ],
)
def test_an_empty_store_is_refused_and_does_not_mean_the_default(
    tmp_path: Path, flag: str | None, env: dict[str, str], message: str
) -> None:
    manifest = load_manifest(write(tmp_path / "a.yaml", MANIFEST + "store: redis://own\n"), {})
    for known in (manifest, None):
        with pytest.raises(UsageError, match=message):
            store_url(known, flag, env | {"XDG_STATE_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ['store: ""', "store:", 'store: {url: ""}', "store: ${NO_SUCH:-}"])
def test_an_empty_store_in_a_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ManifestError, match="store"):
        load_manifest(write(tmp_path / "a.yaml", MANIFEST + text), {})
    with pytest.raises(ManifestError, match="store"):
        load_machine({"DETENT_CONFIG": str(write(tmp_path / "m.yaml", text))})


def test_the_default_store_is_in_the_state_directory(
    tmp_path: Path, env: dict[str, str], monkeypatch: Any
) -> None:
    home = {**env, "HOME": str(tmp_path), "XDG_STATE_HOME": "relative"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert store_url(None, None, home) == f"sqlite:///{tmp_path}/.local/state/detent/detent.db"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert store_url(None, None, home) == "sqlite:////var/lib/detent/detent.db"


def test_the_example_is_sound(env: dict[str, str]) -> None:
    manifest = load_manifest(Path(__file__).parents[2] / "examples" / "detent.yaml", env)
    assert manifest.warnings == ()
    assert len(manifest.jobs) >= 4
