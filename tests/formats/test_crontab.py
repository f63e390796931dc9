"""The lines of a crontab, and the jobs that they become."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.formats.base import LocalContext
from detent.formats.crontab.convert import guess_form, looks_like_crontab, parse_crontab, split_percent
from detent.formats.crontab.jobs import File, convert_crontabs
from detent.manifest.check import check_manifest
from detent.manifest.problems import ManifestError
from detent.model import Command, Job

USERS = {"root", "backup", "www-data"}


def jobs(text: str, form: Any = "user", **here: Any) -> list[Job]:
    """The jobs of a crontab, by way of the manifest."""
    converted = convert_crontabs([File(text, form)], LocalContext(**here))
    return list(check_manifest(converted.document, lines=converted.lines).jobs)


def works(text: str, form: Any = "user", **here: Any) -> list[Command]:
    return [job.work for job in jobs(text, form, **here) if isinstance(job.work, Command)]


def problems(text: str, form: Any = "user") -> list[str]:
    return [f"{problem.line}: {problem.message}" for problem in parse_crontab(text, form).problems]


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("date", "date", None),
        (r"date +\%d\%m", "date +%d%m", None),
        ("mail%hello%you", "mail", "hello\nyou\n"),
        (r"mail%50\% off%", "mail", "50% off\n"),
        ("mail%", "mail", ""),
        ("mail%%", "mail", "\n"),
        (r"echo a\\%b", r"echo a\\", "b\n"),
        (r"echo \n%\n", r"echo \n", "\\n\n"),
        ("echo x   ", "echo x", None),
    ],
)
def test_a_percent_sign_ends_the_command_unless_it_is_escaped(
    text: str, command: str, stdin: str | None
) -> None:
    assert split_percent(text) == (command, stdin)


@given(st.text(st.characters(exclude_characters="%\\\n\r", exclude_categories=("Cs", "Cc")), min_size=1))
def test_a_command_without_percent_signs_is_passed_on_as_it_is(text: str) -> None:
    assert split_percent(text) == (text.rstrip(), None)


def test_variables_hold_for_the_lines_after_them_and_lose_their_quotes() -> None:
    text = "* * * * * a\nX = ' 1 '\n\"Y\"=two words\n* * * * * b\nX=2\nZ=\n* * * * * c\n"
    assert [dict(work.env) for work in works(text)] == [
        {},
        {"X": " 1 ", "Y": "two words"},
        {"X": "2", "Y": "two words", "Z": ""},
    ]


def test_a_dollar_is_escaped_for_the_shell() -> None:
    (work,) = works('A=${B}\n* * * * * echo ${C:-d} $$ $E "$(date)" $${F}\n')
    assert work.words == ("/bin/sh", "-c", 'echo ${C:-d} $$ $E "$(date)" $${F}')
    assert dict(work.env) == {"A": "${B}"}


def test_a_shell_of_its_own_runs_the_lines_after_it() -> None:
    first, second = works("* * * * * a\nSHELL=/bin/bash\n* * * * * b\n")
    assert first.words == ("/bin/sh", "-c", "a")
    assert second.words == ("/bin/bash", "-c", "b") and dict(second.env) == {"SHELL": "/bin/bash"}


def test_a_shell_of_a_crontab_is_converted_to_the_field_shell() -> None:
    made = convert_crontabs([File("SHELL=/bin/bash\n* * * * * a | b\n", "user")], LocalContext())
    [job] = made.document["jobs"]
    assert (job["command"], job["shell"]) == ("a | b", ["/bin/bash", "-c"])


def test_a_command_runs_in_its_users_home_or_in_HOME() -> None:
    text = "0 0 * * * root a\n0 0 * * * ann b\nHOME=/srv\n0 0 * * * ann c\n"
    made = works(text, "system", homes={"root": "/root", "ann": "/home/ann"})
    assert [(work.user, work.work_dir) for work in made] == [
        ("root", "/root"),
        ("ann", "/home/ann"),
        ("ann", "/srv"),
    ]


def test_lines_keep_what_cron_does_where_a_new_job_would_differ() -> None:
    first, alone, boot = jobs("0 1 * * * a\n0 2 * * * -s b\n@reboot c\n")
    assert (first.policy.concurrency, first.policy.catch_up) == ("Allow", "skip")
    assert isinstance(first.work, Command) and first.work.children == "leave"
    assert alone.policy.concurrency == "Forbid"
    converted = convert_crontabs([File("@reboot c\n@daily d\n", "user")], LocalContext())
    assert check_manifest(converted.document).everywhere == {boot.name}


def test_schedules_are_in_the_machines_zone_unless_CRON_TZ_says_another() -> None:
    text = "0 8 * * * a\nCRON_TZ=Asia/Tokyo\n0 8 * * * b\n"
    converted = convert_crontabs([File(text, "user")], LocalContext("Europe/Berlin"))
    assert converted.document["defaults"]["timezone"] == "Europe/Berlin"
    assert [job.get("timezone") for job in converted.document["jobs"]] == [None, "Asia/Tokyo"]
    assert all("CRON_TZ" not in job.get("env", {}) for job in converted.document["jobs"])


def test_a_name_depends_on_schedule_user_and_command_and_not_on_the_line() -> None:
    text = "0 1 * * * /opt/a.sh --all > /dev/null 2>&1\n@daily cd /x && ./b\n"
    names = [job.name for job in jobs(text)]
    assert [name[:-6] for name in names] == ["default.a-sh-", "default.b-"]
    moved = "\n# moved\n@daily cd /x && ./b\nA=b\n0 1 * * * /opt/a.sh --all > /dev/null 2>&1\n"
    assert [job.name for job in jobs(moved)] == names[::-1]
    changed = jobs(text.replace("0 1", "0 2"))
    assert changed[0].name != names[0] and changed[1].name == names[1]


@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc", "Z"))), min_size=1, max_size=4))
def test_every_command_gets_a_name_that_a_manifest_takes(commands: list[str]) -> None:
    lines = [f"* * * * * x{command}".replace("%", "") for command in commands]
    made = jobs("\n".join([*lines, *lines, ""]))
    assert len({job.name for job in made}) == len(made) == 2 * len(commands)


def test_equal_fields_of_all_jobs_become_defaults() -> None:
    text = "A=1\nB=2\n0 0 * * * root a\nB=3\n0 0 * * * root b\n"
    document = convert_crontabs([File(text, "system")], LocalContext(homes={"root": "/root"})).document
    assert document["defaults"]["env"] == {"A": "1"} and document["defaults"]["user"] == "root"
    assert [job.get("env") for job in document["jobs"]] == [{"B": "2"}, {"B": "3"}]


def test_all_problems_are_reported_together_with_their_lines() -> None:
    text = "61 * * * * a\n# fine\n* * * * *\nhello there\n@fortnightly b\n1~ * * * * c\n0 0 * * * d\n"
    found = problems(text)
    assert [line.partition(" ")[0] for line in found] == ["1:", "3:", "4:", "5:", "6:"]
    assert found[0] == '1: bad schedule "61 * * * *": minute 61 is not in 0–59'
    assert found[1] == '3: "* * * * *" has no command'
    assert found[2] == '4: "hello there" is neither 5 fields and a command, nor NAME=value'
    with pytest.raises(ManifestError) as error:
        convert_crontabs([File(text, "user"), File("x\n", "user", "other")], LocalContext())
    assert len(error.value.problems) == 6 and error.value.problems[-1].file == "other"


def test_a_system_crontab_needs_a_user_before_the_command() -> None:
    (problem,) = problems("* * * * * /bin/true\n", "system")
    assert "is not a user name" in problem and "--crontab user:FILE" in problem


def test_a_crontab_without_entries_is_refused() -> None:
    with pytest.raises(ManifestError, match="has no entry"):
        convert_crontabs([File("# nothing\nA=b\n", "user")], LocalContext())


@pytest.mark.parametrize(
    ("text", "form", "doubtful"),
    [
        ("0 0 * * * tar c /\n", "user", False),
        ("0 0 * * * root tar c /\n@daily www-data x y\n", "system", True),
        ("0 0 * * * backup --all\n@daily tidy\n", "user", True),
        ("0 0 * * * backup\n", "user", False),  # a user alone is no command: it is one
        ("# m h dom mon dow user command\n0 0 * * * nobody-here x\n", "system", False),
        ("# m h  dom mon dow   command\n0 0 * * * x\n", "user", False),
    ],
)
def test_the_form_is_guessed_with_a_warning_if_it_is_uncertain(text: str, form: str, doubtful: bool) -> None:
    guessed, doubt = guess_form(text, USERS)
    assert guessed == form and bool(doubt) == doubtful


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("0 0 * * * a\n", True),
        ("A=b\n@daily a\n", True),
        ("@every_minute a\n", True),
        ("0~9 0 * * * a\n", True),
        ("A=b\n", False),
        ("", False),
        ("jobs:\n  - name: x\n", False),
        ("[section]\nkey = value\n", False),
        ("0 0 * * * a\nand more text\n", False),
        ("99 0 * * * a\n", False),
    ],
)
def test_a_text_is_taken_for_a_crontab_only_if_every_line_is_one_of_it(text: str, is_one: bool) -> None:
    assert looks_like_crontab(text) == is_one
