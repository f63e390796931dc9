"""Timers and services of systemd as jobs, rule by rule."""

import subprocess
from typing import Any

import pytest

from detent.errors import UsageError
from detent.formats.base import Converted
from detent.formats.systemd.convert import convert_systemd
from detent.formats.systemd.units import expand, parse_span, parse_unit, split_words, unknown_specifiers
from detent.manifest.check import check_manifest
from detent.manifest.problems import ManifestError
from detent.model import Command

DAILY = "[Timer]\nOnCalendar=daily\n"


def convert(timer: str = DAILY, service: str = "[Service]\nExecStart=/bin/x\n") -> Converted:
    return convert_systemd({"x.timer": timer, "x.service": service}, "UTC")


def job(service: str, timer: str = DAILY) -> dict[str, Any]:
    """The one job of a timer, which must load."""
    converted = convert(timer, service)
    check_manifest(converted.document, variables={"HOME": "/home/me"})
    (made,) = converted.document["jobs"]
    assert isinstance(made, dict)
    return made


def running(lines: str) -> dict[str, Any]:
    return job(f"[Service]\nExecStart=/bin/x\n{lines}\n")


def notes_of(converted: Converted) -> str:
    return "\n".join(f"{warning.file}: {warning.message}" for warning in converted.warnings)


# The text of units.


def test_lines_are_joined_comments_ignored_and_empty_values_reset_a_key() -> None:
    text = "[Service]\n# no\nA=1\nB=one \\\n; no\n  two\nA=2\nA=\nA=3\nC=\n"
    unit = parse_unit("x.service", text)
    assert [(entry.value, entry.line) for entry in unit.given("Service", "A")] == [("3", 9)]
    (continued,) = unit.given("Service", "B")
    assert (continued.value.split(), continued.line) == (["one", "two"], 4)
    assert unit.last("Service", "C") is None


@pytest.mark.parametrize("text", ["[Timer]\nOnCalendar daily", "OnCalendar=daily"])
def test_a_line_that_is_no_assignment_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ManifestError, match=r"x\.timer:\d"):
        convert(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("a'b c'd", ["ab cd"]),
        ('""', [""]),
        (r"a\tb \x41 \101 \u00e4 \s", ["a\tb", "A", "A", "ä", " "]),
        (r"'a\tb'", [r"a\tb"]),
        (r'"say \"x\""', ['say "x"']),
        (r"\;", [r"\;"]),
        ("", []),
    ],
)
def test_words_are_split_as_systemd_splits_them(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_an_unclosed_quote_disables_the_job_with_a_warning() -> None:
    converted = convert(service="[Service]\nExecStart=/bin/x 'a\n")
    assert converted.document["jobs"][0]["enabled"] is False
    assert "not closed" in notes_of(converted)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1h 30min", 5400),
        ("1h30m", 5400),
        ("2 days", 172_800),
        ("500ms", 0.5),
        ("1w", 604_800),
        ("1.5h", 5400),
        ("0", 0),
        ("infinity", None),
    ],
)
def test_a_span_of_time_in_seconds(text: str, seconds: float | None) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["soon", "5 parsecs", "-3s", "1h x"])
def test_an_invalid_time_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="time span"):
        parse_span(text)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("%n %N %p", "web@a-b.service web@a-b web"),
        ("%i %I", "a-b a/b"),
        ("100%% %S/x", "100% /var/lib/x"),
        ("%H", "%H"),
    ],
)
def test_specifiers_are_filled_in_from_the_units_name(text: str, filled: str) -> None:
    assert expand(text, "web@a-b.service") == filled


def test_specifiers_that_only_the_manager_knows_are_named() -> None:
    assert unknown_specifiers("%n %H %% %m") == ["%H", "%m"]


# Commands.


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ("ExecStart=/bin/a 'b c' d", ["/bin/a", "b c", "d"]),
        ("ExecStart=/bin/a\nExecStart=\nExecStart=/bin/b", ["/bin/b"]),
        ("ExecStart=/bin/a\nExecStart=/bin/b 'c d'", "/bin/a && /bin/b 'c d'"),
        ("ExecStart=/bin/a ; /bin/b \\; c", "/bin/a && /bin/b ';' c"),
        ("ExecStart=-/bin/a", "{ /bin/a || true; }"),
        ("ExecStart=+/bin/a", ["/bin/a"]),
        ("ExecStart=@/bin/a name b", ["/bin/a", "b"]),
        ("ExecStart=:/bin/a ${B} $C", ["/bin/a", "$${B}", "$C"]),
        ("ExecStart=/bin/a $$ $$B", ["/bin/a", "$", "$B"]),
        ("ExecStart=/bin/a x$B", ["/bin/a", "x$B"]),
        ("Environment=B=1 C='2 3'\nExecStart=/bin/a -${B}- $C ${C}", ["/bin/a", "-1-", "2", "3", "2 3"]),
        ("ExecStart=/bin/a -${B}-'$' $C", "set -f; /bin/a -\"$B\"'-$' $C"),
        ("EnvironmentFile=/etc/e\nExecStart=/bin/a", "set -a; . /etc/e; set +a; /bin/a"),
        ("Environment=A=1\nEnvironmentFile=/e\nExecStart=/a ${A}", 'set -a; . /e; set +a; /a "$A"'),
        ("EnvironmentFile=-/e\nExecStart=/a", "if [ -r /e ]; then set -a; . /e; set +a; fi; /a"),
        ("ExecStartPre=/a\nExecStart=/b\nExecStartPost=-/c", "/a && /b && { /c || true; }"),
        ("ExecCondition=/a\nExecStart=/b", "{ /a || exit 0; } && /b"),
        ("ExecStart=%h/a", ["${HOME}/a"]),
        ("ExecStart=/bin/a %%F", ["/bin/a", "%F"]),
    ],
)
def test_command_lines_become_one_command(lines: str, command: str | list[str]) -> None:
    assert job(f"[Service]\n{lines}\n")["command"] == command


@pytest.mark.parametrize(
    ("lines", "output", "code"),
    [
        ("Environment='A=1 2'\nExecStart=/usr/bin/printf <%%s> $A ${A} $$A 'x y'", "<1><2><1 2><$A><x y>", 0),
        ("ExecStart=/usr/bin/printf <%%s> ${A}-${B} $A", "<* it's-><*><it's>", 0),
        ("ExecStart=-/bin/false\nExecStart=/usr/bin/printf x", "x", 0),
        ("ExecStart=/bin/false\nExecStart=/usr/bin/printf x", "", 1),
        ("ExecStart=/bin/true\nExecStartPost=-/bin/false", "", 0),
        ("ExecCondition=/bin/false\nExecStart=/usr/bin/printf x", "", 0),
        ("EnvironmentFile=-/nowhere/at/all\nExecStart=/usr/bin/printf <%%s> ${A}", "<* it's>", 0),
    ],
)
def test_the_command_behaves_as_under_systemd(lines: str, output: str, code: int) -> None:
    document = convert(service=f"[Service]\n{lines}\n").document
    (made,) = check_manifest(document).jobs
    assert isinstance(made.work, Command)
    environment = {"A": "* it's", **dict(made.work.env)}
    ended = subprocess.run(made.work.words, env=environment, capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.returncode) == (output, code)


# Services.


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ("User=web", {"user": "web"}),
        ("WorkingDirectory=/srv", {"work_dir": "/srv"}),
        ("WorkingDirectory=%h/x", {"work_dir": "${HOME}/x"}),
        ("Environment=A=1 'B=2 3' C=${D}", {"env": {"A": "1", "B": "2 3", "C": "$${D}"}}),
        ("KillMode=process", {"children": "leave"}),
        ("KillMode=mixed", {"children": None}),
        ("Type=forking", {"children": "leave"}),
        ("TimeoutStopSec=90", {"kill_after_seconds": 90}),
        ("TimeoutStopSec=2h", {"kill_after_seconds": 3600}),
        ("DynamicUser=yes", {"enabled": False}),
        ("User=%u", {"enabled": False, "user": None}),
        ("WorkingDirectory=~", {"enabled": False, "work_dir": None}),
        ("WorkingDirectory=/srv/%H", {"enabled": False}),
        ("Environment=HOST=%H", {"enabled": False}),
        ("ExecStartPre=/bin/y %H", {"enabled": False}),
    ],
)
def test_a_setting_becomes_a_field(lines: str, fields: dict[str, Any]) -> None:
    made = running(lines)
    assert {name: made.get(name) for name in fields} == fields


RETRY = {"max_attempts": 5, "min_seconds": 1, "max_seconds": 1}


@pytest.mark.parametrize(
    ("lines", "policy"),
    [
        ("", {"concurrency": "Forbid", "catch_up": "skip", "timeout_seconds": None, "retries": None}),
        ("Type=oneshot\nTimeoutStartSec=2min", {"timeout_seconds": 120}),
        ("Type=simple\nTimeoutStartSec=2min", {"timeout_seconds": None}),
        ("Type=simple\nRuntimeMaxSec=1.5", {"timeout_seconds": 2}),
        ("Type=oneshot\nTimeoutSec=infinity", {"timeout_seconds": None}),
        ("Type=oneshot\nTimeoutStartSec=8d", {"timeout_seconds": None}),
        ("Restart=no", {"retries": None}),
        ("Restart=on-failure", {"retries": RETRY}),
        ("Restart=on-failure\n[Unit]\nStartLimitBurst=2", {"retries": {**RETRY, "max_attempts": 2}}),
        (
            "Restart=on-failure\nRestartSec=30",
            {"retries": {"max_attempts": 1000, "min_seconds": 30, "max_seconds": 30}},
        ),
        (
            "Restart=on-failure\nRestartSec=30\n[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=4",
            {"retries": {"max_attempts": 4, "min_seconds": 30, "max_seconds": 30}},
        ),
    ],
)
def test_a_setting_becomes_policy(lines: str, policy: dict[str, Any]) -> None:
    made = running(lines)["policy"]
    assert {name: made.get(name) for name in policy} == policy


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("Nice=5\nProtectSystem=full", "Nice and ProtectSystem: a job has the rights and limits of the node"),
        ("SuccessExitStatus=3", "only exit code 0"),
        ("KillSignal=SIGINT", "SIGTERM"),
        ("StandardOutput=file:/x", "detent logs"),
        ("ExecStopPost=/bin/y", "on_failure"),
        ("Group=www", "groups of its `user`"),
        ("Type=notify", "are ignored"),
        ("RemainAfterExit=yes", "fires each time"),
        ("Restart=always", "not started again after a success"),
        ("Environment=DETENT_X=1", "is not a valid variable"),
        ("WorkingDirectory=-/srv", "the fire fails"),
        ("TimeoutStopSec=soon", "systemd ignores it"),
        (
            "[Unit]\nOnFailure=mail@%n.service",
            "on_failure: systemctl start --no-block mail@x.service.service",
        ),
        ("[Unit]\nAfter=a\nWants=a", "After and Wants: detent does not start"),
        ("[Unit]\nConditionPathExists=/x", "check it in the command"),
        ("[Unit]\nPropagatesStopTo=x", "PropagatesStopTo"),
    ],
)
def test_a_setting_without_an_equivalent_is_reported_with_its_path(lines: str, words: str) -> None:
    converted = convert(service=f"[Service]\nExecStart=/bin/x\n{lines}\n")
    (warning,) = converted.warnings
    assert words in warning.message
    assert (warning.file, warning.line) in (("x.service", 3), ("x.service", 4))


@pytest.mark.parametrize(
    "lines",
    [
        "StandardOutput=journal",
        "KillSignal=SIGTERM",
        "Type=oneshot",
        "SyslogIdentifier=x",
        "DynamicUser=no",
        "Nice=",
        "[Install]\nWantedBy=timers.target",
        "[Unit]\nDocumentation=man:x",
    ],
)
def test_settings_without_effect_are_not_reported(lines: str) -> None:
    assert convert(service=f"[Service]\nExecStart=/bin/x\n{lines}\n").warnings == ()


# Timers.


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        ("OnCalendar=02:00", {"schedule": "0 2 * * *"}),
        ("OnCalendar=02:00\nOnCalendar=03:00", {"schedules": ["0 2 * * *", "0 3 * * *"]}),
        ("OnCalendar=daily Asia/Tokyo", {"schedule": "0 0 * * *", "timezone": "Asia/Tokyo"}),
        ("OnCalendar=2026-12-24 18:00", {"at": "2026-12-24T18:00:00+00:00"}),
        ("OnBootSec=0", {"schedule": "@reboot", "run_on": "every"}),
        ("OnUnitActiveSec=1h 30min", {"schedule": "@every 1h30m"}),
        ("OnUnitInactiveSec=100ms", {"schedule": "@every 1s"}),
        ("OnCalendar=daily\nPersistent=true", {"schedule": "0 0 * * *"}),
    ],
)
def test_when_a_timer_elapses(lines: str, times: dict[str, Any]) -> None:
    made = job("[Service]\nExecStart=/bin/x\n", f"[Timer]\n{lines}\n")
    names = ("schedule", "schedules", "at", "timezone", "run_on")
    assert {name: made[name] for name in names if name in made} == times


@pytest.mark.parametrize(("line", "catch_up"), [("Persistent=true", "latest"), ("Persistent=no", "skip")])
def test_a_persistent_timer_catches_up(line: str, catch_up: str) -> None:
    assert job("[Service]\nExecStart=/bin/x\n", f"{DAILY}{line}\n")["policy"]["catch_up"] == catch_up


def test_times_that_one_job_cannot_hold_are_jobs_of_their_own() -> None:
    converted = convert("[Timer]\nOnCalendar=daily\nOnCalendar=daily Asia/Tokyo\nOnCalendar=2030-1-1\n")
    jobs = converted.document["jobs"]
    assert [made["name"] for made in jobs] == ["x", "x-2", "x-3"]
    assert "3 jobs, for several zones or years, which may run" in notes_of(converted)
    jobs[0]["command"].append("changed")
    assert jobs[1]["command"] == ["/bin/x"]


def test_an_unsupported_event_disables_only_its_own_job() -> None:
    converted = convert("[Timer]\nOnCalendar=daily\nOnCalendar=Fri *-*-13\n")
    jobs = converted.document["jobs"]
    assert [made.get("enabled", True) for made in jobs] == [True, False]
    assert "x.timer: OnCalendar=Fri *-*-13" in notes_of(converted)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("OnCalendar=*:60", "60"),
        ("OnUnitActiveSec=infinity", "never elapses"),
        ("OnUnitActiveSec=9999y", "never elapses"),
        ("OnBootSec=soon", "time span"),
        ("Persistent=true", "no time can be converted"),
    ],
)
def test_a_timer_without_a_time_becomes_a_disabled_job(line: str, words: str) -> None:
    converted = convert(f"[Timer]\n{line}\n")
    assert converted.document["jobs"][0]["enabled"] is False
    assert words in notes_of(converted) and "disabled" in notes_of(converted)
    check_manifest(converted.document)


@pytest.mark.parametrize(
    "line",
    [
        "RandomizedDelaySec=5",
        "WakeSystem=yes",
        "OnClockChange=yes",
        "Mystery=1",
        "[Unit]\nAfter=x",
        "OnBootSec=5",
    ],
)
def test_other_settings_of_a_timer_are_reported(line: str) -> None:
    (warning,) = convert(f"{DAILY}{line}\n").warnings
    assert line.split("\n")[-1] in warning.message


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ({"a.timer": DAILY}, "a.service is not among these files"),
        ({"a.timer": f"{DAILY}Unit=b.target\n"}, "only a service can become a job"),
        ({"a@.timer": DAILY, "a@.service": "[Service]\nExecStart=/bin/a"}, "is a template"),
        ({"a.timer": DAILY, "a.service": "[Service]\nType=oneshot"}, "no ExecStart"),
    ],
)
def test_a_timer_without_a_command_becomes_a_disabled_job(units: dict[str, str], words: str) -> None:
    converted = convert_systemd(units, "UTC")
    (made,) = converted.document["jobs"]
    assert made["enabled"] is False
    assert words in notes_of(converted)


def test_an_instance_finds_its_template_and_its_name() -> None:
    units = {"a@b-c.timer": DAILY, "a@.service": "[Service]\nExecStart=/bin/a %i %n"}
    (made,) = convert_systemd(units, "UTC").document["jobs"]
    assert (made["name"], made["command"]) == ("a-b-c", ["/bin/a", "b-c", "a@b-c.service"])


def test_a_service_that_no_timer_starts_is_reported() -> None:
    units = {"a.timer": f"{DAILY}Unit=b.service\n", "b.service": "[Service]\nExecStart=/b", "c.service": ""}
    converted = convert_systemd(units, "UTC")
    assert notes_of(converted) == "c.service: no timer here starts it; it is not converted"


def test_units_without_a_timer_are_refused() -> None:
    with pytest.raises(ManifestError, match=r"these units have no \.timer; there is a\.service"):
        convert_systemd({"a.service": "[Service]\nExecStart=/a"}, "UTC")


def test_the_machines_zone_is_the_jobs() -> None:
    units = {"a.timer": DAILY, "a.service": "[Service]\nExecStart=/a"}
    assert convert_systemd(units, "Europe/Berlin").document["jobs"][0]["timezone"] == "Europe/Berlin"
