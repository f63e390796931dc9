"""Foreign files by way of the command line: `convert`, and every verb that takes a manifest."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.cli_world import Detent

from detent.cli.write.convert import WRITERS
from detent.formats.base import Converted
from detent.loading.documents import parse_json, parse_toml, parse_yaml

CRONTAB = "MAILTO=ann\n0 2 * * * /opt/backup.sh > /dev/null\n@reboot /opt/bot\n"
CRONLOCK = "redis: {address: localhost:6379}\njobs:\n  - {name: a, schedule: '@hourly', command: 'true'}\n"


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)


@given(texts(), st.dictionaries(texts(), texts(), max_size=3), st.text("ab \n\t#:'\"\\-", max_size=20))
def test_every_format_says_what_it_was_given(word: str, env: dict[str, str], plain: str) -> None:
    fields = {"command": ["a", word, plain], "env": env, "work_dir": word, "enabled": False}
    document = {"version": 2, "app": word, "node": {"grace_seconds": 0.5}, "jobs": [fields, {"name": plain}]}
    converted = Converted(document, sources=(word, plain))
    parsers = {"yaml": parse_yaml, "toml": parse_toml, "json": parse_json}
    for format, parse in parsers.items():
        text = "\n".join(WRITERS[format](converted, Path("x"))) + "\n"  # as `print` does
        assert parse(text)[0] == document, format


@pytest.fixture
def crontab(folder: Path) -> Path:
    file = folder / "table"
    file.write_text(CRONTAB)
    return file


def test_convert_writes_each_line_above_its_job_and_warnings_at_the_top(
    detent: Detent, crontab: Path
) -> None:
    said = detent("convert", "--crontab", str(crontab))
    lines = said.out.splitlines()
    assert said.code == 0 and lines[0].startswith("# Made from")
    assert lines[1].startswith('# warning: no mail is sent to "ann"')
    at = lines.index("  # 0 2 * * * /opt/backup.sh > /dev/null")
    assert lines[at + 1].startswith("  - name: backup-sh-")
    assert "no mail is sent" in said.err and yaml.safe_load(said.out)["version"] == 2


def test_convert_for_a_program_has_the_document_and_the_warnings(detent: Detent, crontab: Path) -> None:
    made = detent("convert", "--crontab", str(crontab), "-o", "json").json
    assert made["document"]["app"] == "table" and made["warnings"][0]["line"] == 1


def test_convert_uses_the_given_app_name(detent: Detent, crontab: Path) -> None:
    named = detent("convert", "--crontab", str(crontab), "--app", "nightly", "-o", "json")
    assert named.json["document"]["app"] == "nightly"
    wrong = detent("convert", "--crontab", str(crontab), "--app", "No Name")
    assert wrong.code == 1 and "is not a name" in wrong.err


def test_convert_says_what_it_cannot_convert(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text("version: 2\napp: a\njobs: []\n")
    said = detent("convert", "detent.yaml")
    assert said.code == 1 and 'cannot convert "detent.yaml": it is not a cronlock' in said.err
    assert "name the file to convert" in detent("convert").err


def test_problems_of_a_bad_file_are_reported_with_their_lines(detent: Detent, folder: Path) -> None:
    (folder / "cronlock.yaml").write_text(CRONLOCK + "  - {name: a, schedule: x, command: b, timeout: 5}\n")
    for words in (("convert",), ("validate", "-f")):
        said = detent(*words, "cronlock.yaml")
        assert said.code == 1 and "traceback" not in said.err.lower()
        lines = said.err.splitlines()
        assert lines[0].startswith('jobs[1].name "a" is a duplicate of jobs[0]')
        assert lines[1].startswith('jobs[1].schedule: bad schedule "x"')
        assert lines[2].startswith("jobs[1].timeout is 5 without a unit")
        assert all(line.endswith("(cronlock.yaml:4)") for line in lines[:3])


@pytest.mark.parametrize("verb", ["validate", "next", "list", "show"])
def test_every_verb_takes_a_crontab(detent: Detent, crontab: Path, verb: str) -> None:
    said = detent(verb, "--crontab", str(crontab))
    assert said.code == 0 and "1 problem" not in said.err
    assert ("2 jobs" if verb == "validate" else "table.backup-sh-") in said.out


@pytest.mark.parametrize(
    "words", [("validate", "-f", "it.yaml"), ("next", "--file", "it.yaml"), ("show", "-f", "it.yaml")]
)
def test_every_verb_takes_a_cronlock_file(detent: Detent, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "it.yaml").write_text(CRONLOCK)
    said = detent(*words)
    assert said.code == 0 and ("1 job" in said.out or "it.a" in said.out)


def test_a_crontab_is_recognised_without_an_option(detent: Detent, crontab: Path) -> None:
    said = detent("validate", "-f", str(crontab))
    assert said.code == 0 and "2 jobs" in said.out
    crontab.write_text("just a note\n")
    assert "its name must end in" in detent("validate", "-f", str(crontab)).err


def test_next_says_what_fires_at_boot(detent: Detent, crontab: Path) -> None:
    said = detent("next", "--crontab", str(crontab), "-n", "1")
    assert "at boot, when a node first starts: table.bot-" in said.err
    boot = next(
        job["job"]
        for job in detent("list", "--crontab", str(crontab), "-o", "json").json
        if "bot" in job["job"]
    )
    alone = detent("next", boot, "--crontab", str(crontab))
    assert alone.out == "" and "at boot" in alone.err and "nothing is due" not in alone.err


def test_several_crontabs_and_folders_are_one_manifest(detent: Detent, folder: Path, crontab: Path) -> None:
    system = folder / "cron.d"
    system.mkdir()
    (system / "one").write_text("5 5 * * * root /opt/one\n")
    (system / "two").write_text("MAILTO=bob\n6 6 * * * root /opt/two\n")
    (system / "one.bak").write_text("not a crontab\n")
    (system / ".placeholder").write_text("")
    said = detent("validate", "--crontab", str(crontab), "--crontab", str(system), "-o", "json")
    places = [(one["file"], one["line"]) for one in said.json if one["code"] == "foreign"]
    assert places == [(f"{system}/one.bak", None), (str(crontab), 1), (f"{system}/two", 1)]
    jobs = detent("list", "--crontab", str(crontab), "--crontab", str(system), "-o", "json").json
    assert [job["job"][:-7] for job in jobs] == ["backup-sh", "bot", "one", "two"]


def test_the_form_follows_from_the_path_or_an_option(detent: Detent, folder: Path) -> None:
    file = folder / "table"
    file.write_text("0 0 * * * nobody-known /opt/x\n")

    def shown(named: str) -> str:
        made = json.loads(detent("show", "--crontab", named, "--canonical").out)["jobs"][0]
        return f"{made.get('user', '')}: {made['command']}"

    assert shown(str(file)) == shown(f"user:{file}") == ": nobody-known /opt/x"
    assert shown(f"system:{file}") == "nobody-known: /opt/x"
    (folder / "cron.d").mkdir()
    moved = file.rename(folder / "cron.d" / "table")
    assert shown(str(moved)) == "nobody-known: /opt/x"


def test_a_guessed_form_is_reported(detent: Detent, folder: Path) -> None:
    (folder / "table").write_text("0 0 * * * root /opt/x\n")
    said = detent("convert", "--crontab", "table")
    assert "is read as the user" in said.err and yaml.safe_load(said.out)["defaults"]["user"] == "root"


def test_two_manifests_at_once_are_refused(detent: Detent, crontab: Path) -> None:
    said = detent("validate", "-f", "x.yaml", "--crontab", str(crontab))
    assert said.code == 2 and "two manifests are named" in said.err


def test_a_Redis_that_hosts_share_is_taken_over_and_another_store_can_be_named(
    detent: Detent, folder: Path
) -> None:
    (folder / "it.yaml").write_text(CRONLOCK.replace("localhost", "elsewhere.invalid"))
    assert detent("next", "--file", "it.yaml").code == 0
    said = detent("list", "--file", "it.yaml")
    assert said.code == 1 and "the Redis at elsewhere.invalid:6379 does not answer" in said.err
    assert detent("list", "--file", "it.yaml", "--store", f"sqlite:///{folder}/x.db").code == 0


@pytest.mark.parametrize(
    ("zone", "expected"), [("Asia/Tokyo", "Asia/Tokyo"), (":Europe/Rome", "Europe/Rome")]
)
def test_schedules_are_in_the_zone_of_the_machine(
    detent: Detent, crontab: Path, monkeypatch: pytest.MonkeyPatch, zone: str, expected: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    made = yaml.safe_load(detent("convert", "--crontab", str(crontab)).out)
    assert made["defaults"]["timezone"] == expected
