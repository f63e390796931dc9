"""A table of broken manifests: each is refused at the right path, with a message that can be acted on."""

from typing import Any

import pytest

from detent.manifest.check import check_manifest
from detent.manifest.problems import ManifestError

JOB: dict[str, Any] = {"name": "a", "schedule": "0 2 * * *", "command": "true"}
CALL: dict[str, Any] = {"name": "a", "schedule": "0 2 * * *", "request": {"url": "http://h/x"}}


def top(**fields: Any) -> dict[str, Any]:
    return {"version": 2, "app": "demo", "jobs": [JOB], **fields}


def job(**fields: Any) -> dict[str, Any]:
    return top(jobs=[{**JOB, **fields}])


def policy(**fields: Any) -> dict[str, Any]:
    return job(policy=fields)


def retries(**fields: Any) -> dict[str, Any]:
    return policy(retries=fields)


def request(**fields: Any) -> dict[str, Any]:
    return top(jobs=[{**CALL, "request": {**CALL["request"], **fields}}])


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


def only(**fields: Any) -> dict[str, Any]:
    """A job of nothing but its name and these."""
    return top(jobs=[{"name": "a", **fields}])


def webhook(**fields: Any) -> dict[str, Any]:
    return job(on_skip={"url": "http://h/x", **fields})


def alert(**fields: Any) -> dict[str, Any]:
    return job(on_skip={"to": "json://h/x", **fields})


def call(function: str = "a.b:c", **fields: Any) -> dict[str, Any]:
    return only(schedule="@daily", call=function, **fields)


def enqueue(**fields: Any) -> dict[str, Any]:
    return only(schedule="@daily", enqueue=fields)


def deep(levels: int) -> list[Any]:
    return [deep(levels - 1)] if levels > 1 else []


def first(document: dict[str, Any]) -> dict[str, Any]:
    """The same as version 1."""
    return {**document, "version": 1}


VERSION_2: list[tuple[str, Any, str, str]] = [
    # The whole document.
    ("nothing at all", None, "", "a manifest is a mapping"),
    ("a list", [], "", "a list"),
    ("a text", "jobs", "", '"jobs"'),
    ("no version", without(top(), "version"), "version", 'missing key "version"; write 2'),
    ("version 3", top(version=3), "version", "3 is not a version"),
    ("version as text", top(version="2"), "version", '"2" is not a version'),
    ("version true", top(version=True), "version", "true is not a version"),
    ("version as a list", top(version=[2]), "version", "a list is not a version"),
    ("no app", without(top(), "app"), "app", "missing"),
    ("a capital app", top(app="Demo"), "app", '"Demo" is not a name'),
    ("an app with a dot", top(app="de.mo"), "app", "is not a name"),
    ("an app of 64 letters", top(app="a" * 64), "app", "up to 62"),
    ("an app with a line break", top(app="demo\n"), "app", '"demo\\n" is not a name'),
    ("a number as app", top(app=5), "app", "put it in quotes"),
    ("no jobs", without(top(), "jobs"), "jobs", "missing"),
    ("an empty list of jobs", top(jobs=[]), "jobs", "from 1 to 100,000"),
    ("a mapping of jobs", top(jobs={"a": JOB}), "jobs", "a mapping is not a list of jobs"),
    ("a text as job", top(jobs=["a"]), "jobs/0", '"a" is not a mapping'),
    ("a misspelt top field", top(job=[]), "job", 'did you mean "jobs"?'),
    ("a top field from nowhere", top(zzz=1), "zzz", "allowed are version, app, jobs, defaults"),
    # Names and times.
    ("a job without a name", top(jobs=[without(JOB, "name")]), "jobs/0/name", "missing"),
    ("two jobs of one name", top(jobs=[JOB, JOB]), "jobs/1/name", "already the name of jobs[0]"),
    ("a name with an underscore", job(name="a_b"), "jobs/0/name", "hyphens"),
    ("no schedule", only(command="x"), "jobs/0", "exactly one of schedule, schedules or at; none is given"),
    ("both", job(schedules=["@daily"]), "jobs/0/schedules", "schedule and schedules are given"),
    ("a schedule and at", job(at="2030-01-01T00:00Z"), "jobs/0/at", "schedule and at are given"),
    ("a bad minute", job(schedule="61 * * * *"), "jobs/0/schedule", "61"),
    ("an empty schedule", job(schedule=""), "jobs/0/schedule", "the value is empty"),
    ("a schedule that never fires", job(schedule="0 0 30 2 *"), "jobs/0/schedule", "never"),
    ("a number as schedule", job(schedule=5), "jobs/0/schedule", "5 is not a schedule"),
    ("variables in a schedule", job(schedule="${WHEN:-@daily}"), "jobs/0/schedule", "bad schedule"),
    ("no schedules", only(command="x", schedules=[]), "jobs/0/schedules", "from 1 to 1,000"),
    (
        "schedules as text",
        only(command="x", schedules="@daily"),
        "jobs/0/schedules",
        "not a list of schedules",
    ),
    ("the second is bad", only(command="x", schedules=["@daily", "x"]), "jobs/0/schedules/1", "bad schedule"),
    ("a zone that is not", job(timezone="Europe/Berln"), "jobs/0/timezone", "did you mean Europe/Berlin?"),
    ("a zone as path", job(timezone="../etc/passwd"), "jobs/0/timezone", "bad timezone"),
    (
        "a zone of a one-off",
        only(command="x", at="2030-01-01T00:00Z", timezone="X"),
        "jobs/0/timezone",
        "bad",
    ),
    ("at without offset", only(command="x", at="2030-01-01T00:00:00"), "jobs/0/at", "offset"),
    ("at as words", only(command="x", at="tomorrow"), "jobs/0/at", "2026-12-24T18:00:00+01:00"),
    ("at as number", only(command="x", at=1893456000), "jobs/0/at", "2026-12-24T18:00:00+01:00"),
    ("at in 1969", only(command="x", at="1969-01-01T00:00Z"), "jobs/0/at", "1970"),
    ("at between seconds", only(command="x", at="2030-01-01T00:00:00.5Z"), "jobs/0/at", "to the second"),
    (
        "an end before the start",
        job(starts_at="2030-01-02T00:00Z", ends_at="2030-01-01T00:00Z"),
        "jobs/0/ends_at",
        "before starts_at",
    ),
    (
        "no instant between start and end",
        job(starts_at="2030-01-01T03:00Z", ends_at="2030-01-01T04:00Z"),
        "jobs/0/ends_at",
        "never fires between",
    ),
    # Work.
    ("no work", only(schedule="@daily"), "jobs/0", "exactly one of command, request, call or enqueue"),
    ("two works", job(request={"url": "http://h"}), "jobs/0/request", "command and request are given"),
    ("a call without a colon", call("a.b"), "jobs/0/call", "like billing.jobs:send_invoices"),
    ("a call of a file", call("a/b.py:c"), "jobs/0/call", "like billing.jobs:send_invoices"),
    ("a call of nothing", call("a.b:"), "jobs/0/call", "like billing.jobs:send_invoices"),
    ("a text as arguments", call(args="x"), "jobs/0/args", '"x" is not a list (arguments by position) or'),
    ("an argument of no kind", call(args=[1, {"x": (1,)}]), "jobs/0/args/1/x", "(1,) is not JSON"),
    ("an argument that is no number", call(args=[float("inf")]), "jobs/0/args/0", "inf is not JSON"),
    ("an argument named by a number", call(args={5: 1}), "jobs/0/args/5", "5 is not a name; put it in"),
    ("an unset argument", call(args=["${NO_SUCH}"]), "jobs/0/args/0", "NO_SUCH is not set"),
    ("deep arguments", call(args=deep(101)), "jobs/0/args" + "/0" * 99, "nested too deep"),
    ("long arguments", call(args=["x" * 65_530, "y" * 10]), "jobs/0/args", "at most 65,536"),
    ("an isolation that is not", call(isolation="fork"), "jobs/0/isolation", "process, thread or loop"),
    ("a thread elsewhere", call(isolation="thread", work_dir="/x"), "jobs/0/work_dir", "has no process"),
    ("a loop as a user", call(isolation="loop", user="x"), "jobs/0/user", "a call with `isolation: loop`"),
    ("a call that leaves", call(children="leave"), "jobs/0/children", "needs `command`"),
    ("a command with arguments", job(args=[1]), "jobs/0/args", "needs `call`"),
    ("a message of no task", enqueue(), "jobs/0/enqueue/task", "missing"),
    ("a message of a command", enqueue(task="!command"), "jobs/0/enqueue/task", "a task's name"),
    ("a message with a text", enqueue(task="x", args="y"), "jobs/0/enqueue/args", '"y" is not a list'),
    ("a message for no queue", enqueue(task="x", queue="A B"), "jobs/0/enqueue/queue", "is not a name"),
    (
        "an urgent message",
        enqueue(task="x", priority="top"),
        "jobs/0/enqueue/priority",
        "high, normal or low",
    ),
    ("a late message", enqueue(task="x", delay=5), "jobs/0/enqueue/delay", "unknown key"),
    ("a text as message", only(schedule="@daily", enqueue="x"), "jobs/0/enqueue", "is not a mapping"),
    (
        "env on a message",
        only(schedule="@daily", enqueue={"task": "x"}, env={}),
        "jobs/0/env",
        "needs `command` or `call`",
    ),
    ("an empty command", job(command=""), "jobs/0/command", "the value is empty"),
    ("no words", job(command=[]), "jobs/0/command", "from 1 to 1,000"),
    ("an empty program", job(command=["", "x"]), "jobs/0/command", "names the program"),
    ("a number among words", job(command=["sleep", 5]), "jobs/0/command/1", "put it in quotes"),
    ("a command as mapping", job(command={"run": "x"}), "jobs/0/command", "a list of words"),
    ("a NUL in a command", job(command="a\0b"), "jobs/0/command", "NUL"),
    ("half a surrogate", job(command=["\ud800"]), "jobs/0/command/0", "surrogate"),
    ("a command of a megabyte", job(command="x" * 2**20), "jobs/0/command", "1,048,576 characters"),
    ("a variable with a dash", job(env={"A-B": "x"}), "jobs/0/env/A-B", "a variable's name"),
    ("a variable of ours", job(env={"DETENT_APP": "x"}), "jobs/0/env/DETENT_APP", "are ours"),
    ("a number as variable", job(env={"PORT": 80}), "jobs/0/env/PORT", "put it in quotes"),
    ("env as list", job(env=["A=b"]), "jobs/0/env", "not a mapping of variables"),
    ("children", job(children="kill"), "jobs/0/children", "end or leave"),
    ("kill after an hour and more", job(kill_after_seconds=3601), "jobs/0/kill_after_seconds", "0 to 3600"),
    ("a user with a colon", job(user="a:b"), "jobs/0/user", "the name of a user"),
    ("env on a request", top(jobs=[{**CALL, "env": {}}]), "jobs/0/env", "needs `command` or `call`"),
    ("auth on a command", job(auth={"secret_refs": ["k"]}), "jobs/0/auth", "needs `request`"),
    ("a request without url", only(schedule="@daily", request={}), "jobs/0/request/url", "missing"),
    ("ftp", request(url="ftp://h/x"), "jobs/0/request/url", "http:// or https://"),
    ("no host", request(url="http:///x"), "jobs/0/request/url", "with a host"),
    ("a blank in a URL", request(url="http://h/a b"), "jobs/0/request/url", "percent-encoded"),
    ("a port too high", request(url="http://h:65536/"), "jobs/0/request/url", "65536 is not in 0–65535"),
    ("a method in small", request(method="post"), "jobs/0/request/method", 'did you mean "POST"?'),
    ("a header's name", request(headers={"a b": "x"}), "jobs/0/request/headers/a b", "a header's name"),
    ("a smuggled header", request(headers={"a": "x\r\nb: y"}), "jobs/0/request/headers/a", "on one line"),
    ("a header as number", request(headers={"a": 1}), "jobs/0/request/headers/a", "put it in quotes"),
    (
        "101 headers",
        request(headers={f"h{i}": "" for i in range(101)}),
        "jobs/0/request/headers",
        "at most 100",
    ),
    ("a body as mapping", request(body={}), "jobs/0/request/body", "a mapping is not a text"),
    ("another signature", top(jobs=[{**CALL, "auth": {"scheme": "x"}}]), "jobs/0/auth/scheme", "cron or"),
    # Policy.
    ("a misspelt field", policy(timeout_second=5), "jobs/0/policy/timeout_second", '"timeout_seconds"?'),
    (
        "a field of policy on the job",
        job(timeout_seconds=5),
        "jobs/0/timeout_seconds",
        '"policy.timeout_seconds"?',
    ),
    (
        "half a second",
        policy(timeout_seconds=0.5),
        "jobs/0/policy/timeout_seconds",
        "whole number from 0 to 604800",
    ),
    ("a true timeout", policy(timeout_seconds=True), "jobs/0/policy/timeout_seconds", "true is not a whole"),
    (
        "not a number",
        policy(claim_seconds=float("nan")),
        "jobs/0/policy/claim_seconds",
        "nan is not a number",
    ),
    ("for ever", policy(claim_seconds=float("inf")), "jobs/0/policy/claim_seconds", "inf is not a number"),
    ("a huge number", policy(claim_seconds=10**400), "jobs/0/policy/claim_seconds", "too many digits"),
    ("more than a week", policy(timeout_seconds=604801), "jobs/0/policy/timeout_seconds", "604800"),
    ("forbid in small", policy(concurrency="forbid"), "jobs/0/policy/concurrency", 'did you mean "Forbid"?'),
    ("a scope", policy(concurrency_scope="cluster"), "jobs/0/policy/concurrency_scope", "host or global"),
    ("no attempts", retries(max_attempts=0), "jobs/0/policy/retries/max_attempts", "from 1 to 1000"),
    (
        "min over max",
        retries(min_seconds=5, max_seconds=2),
        "jobs/0/policy/retries/min_seconds",
        "more than max",
    ),
    (
        "min over the default",
        retries(min_seconds=61),
        "jobs/0/policy/retries/min_seconds",
        "max_seconds (60)",
    ),
    ("a negative wait", retries(min_seconds=-1), "jobs/0/policy/retries/min_seconds", "-1 is not"),
    ("jitter over 1", retries(jitter=1.5), "jobs/0/policy/retries/jitter", "from 0 to 1"),
    ("a status of 200", retries(on_status=[200]), "jobs/0/policy/retries/on_status/0", "from 300 to 599"),
    ("exit code 0", retries(on_exit_codes=[0]), "jobs/0/policy/retries/on_exit_codes/0", "from 1 to 255"),
    ("retries as number", policy(retries=3), "jobs/0/policy/retries", "3 is not a mapping"),
    ("catch up", policy(catch_up="everything"), "jobs/0/policy/catch_up", "skip, latest or all"),
    ("on lost", policy(on_lost="retry"), "jobs/0/policy/on_lost", "skip or rerun"),
    ("dst", policy(dst="posix"), "jobs/0/policy/dst", "vixie, skip, twice or utc"),
    ("no width", policy(max_running=0), "jobs/0/policy/max_running", "from 1 to"),
    # The rest of a job.
    ("enabled as text", job(enabled="yes"), "jobs/0/enabled", '"yes" is not true or false'),
    ("enabled as number", job(enabled=1), "jobs/0/enabled", "1 is not true or false"),
    ("tags as text", job(tags="a"), "jobs/0/tags", "not a list of tags"),
    ("an empty tag", job(tags=[""]), "jobs/0/tags/0", "the value is empty"),
    ("run on two", job(run_on="two"), "jobs/0/run_on", "one or every"),
    ("a hook's URL without host", job(on_failure="http://"), "jobs/0/on_failure", "not a URL with a host"),
    ("words as hooks", job(on_failure=["notify", "--now"]), "jobs/0/on_failure/1", "[[program, word, …]]"),
    ("a webhook without URL", job(on_skip={"body": "1"}), "jobs/0/on_skip", "either `url` (a webhook)"),
    ("a webhook and an alert", webhook(to="json://h"), "jobs/0/on_skip", "either `url` (a webhook)"),
    ("a webhook with a title", webhook(title="a"), "jobs/0/on_skip", "`title` is for alerts"),
    ("an alert with headers", alert(headers={"A": "b"}), "jobs/0/on_skip", "`headers` are for webhooks"),
    ("an alert to a command", alert(to="mail ops"), "jobs/0/on_skip/to", "not the address of an alert"),
    ("an alert's misspelt placeholder", alert(title="{{jbo}}"), "jobs/0/on_skip", 'did you mean "job"?'),
    ("an address without slashes", job(on_skip="mailto:a@b.c"), "jobs/0/on_skip", "write mailto://…"),
    ("an address with a space", job(on_skip="json://h/a b"), "jobs/0/on_skip", "as %20"),
    ("an empty address", job(on_skip=["slack://"]), "jobs/0/on_skip/0", "the slack address is empty"),
    ("a bad reference", job(on_skip="slack://{{a b}}"), "jobs/0/on_skip", "write {{name}}, {{env:NAME}}"),
    (
        "a ping as a hook",
        job(on_failure="ping:https://h"),
        "jobs/0/on_failure",
        "the field `ping: https://…`",
    ),
    ("a ping with a placeholder", job(ping="https://h/{{fire}}"), "jobs/0/ping", "allowed are job and app"),
    ("a dashboard without host", top(dashboard_url="ops"), "dashboard_url", "an http:// or https:// URL"),
    ("a misspelt field of a webhook", webhook(boddy="1"), "jobs/0/on_skip/boddy", 'did you mean "body"?'),
    (
        "a misspelt placeholder",
        webhook(body='{"text": "{{reson}}"}'),
        "jobs/0/on_skip",
        'unknown placeholder "{{reson}}"; did you mean "reason"?',
    ),
    ("a placeholder from nowhere", webhook(body='"{{zz}}"'), "jobs/0/on_skip", "allowed are app, job, fire"),
    ("an open placeholder", webhook(body='"{{fire"'), "jobs/0/on_skip", "{{ is not closed"),
    ("a body that is no JSON", webhook(body="{text: {{fire}}}"), "jobs/0/on_skip", "the body is not JSON"),
    ("a header of two lines", webhook(headers={"A": "b\nc"}), "jobs/0/on_skip/headers/A", "on one line"),
    ("a shell as a text", job(shell="/bin/bash -c"), "jobs/0/shell", "words; write [/bin/bash, -c]"),
    ("a shell for words", job(command=["a"], shell=["/bin/bash", "-c"]), "jobs/0/shell", "a `command` that"),
    ("a shell without a word", job(shell=[]), "jobs/0/shell", "from 1 to 1,000"),
    (
        "a shell for a request",
        top(jobs=[{**CALL, "shell": ["/bin/bash", "-c"]}]),
        "jobs/0/shell",
        "needs `command`",
    ),
    ("a misspelt timeout", job(timeuot=5), "jobs/0/timeuot", 'did you mean "policy.timeout_seconds"?'),
    ("a timeout without its unit", policy(timeout=5), "jobs/0/policy/timeout", '"timeout_seconds"?'),
    ("a misspelt zone", job(timezon="UTC"), "jobs/0/timezon", 'did you mean "timezone"?'),
    ("no hooks", job(on_skip=[]), "jobs/0/on_skip", "from 1 to 16"),
    ("late after nothing", job(on_late="x", late_after_seconds=0), "jobs/0/late_after_seconds", "from 1"),
    ("a description that is none", job(description=None), "jobs/0/description", "nothing is not a text"),
    # Variables.
    ("an unset variable", job(command="${NOPE}"), "jobs/0/command", "NOPE is not set"),
    ("an unset word", policy(concurrency="${NOPE}"), "jobs/0/policy/concurrency", "NOPE is not set"),
    ("an open brace", job(command="echo ${A"), "jobs/0/command", "$$ for a literal dollar"),
    ("a shell's expansion", job(command="${A%/}"), "jobs/0/command", "$$ for a literal dollar"),
    ("a default in a default", job(command="${A:-${B}}"), "jobs/0/command", "$$ for a literal dollar"),
    ("a variable that does not fit", top(app="${HOST}"), "app", '"My.Host" is not a name'),
    # Top level.
    ("a default of a default", top(defaults={"policy": {"dts": 1}}), "defaults/policy/dts", 'mean "dst"?'),
    ("a default name", top(defaults={"name": "x"}), "defaults/name", "unknown key"),
    ("defaults as list", top(defaults=[]), "defaults", "a list is not a mapping"),
    ("a store without scheme", top(store="detent.db"), "store", "like sqlite:///"),
    ("a store as number", top(store=6379), "store", "a URL or a mapping"),
    ("a misspelt store", top(store={"uri": "x"}), "store/uri", 'did you mean "url"?'),
    ("what a store must be", top(store={"require": "most"}), "store/require", "any or full"),
    ("a node's size", top(node={"max_running": 0}), "node/max_running", "from 1 to"),
    ("a node's name", top(node={"id": "a/b"}), "node/id", "without spaces or slashes"),
    ("a secret as number", top(secrets={"key": 12345}), "secrets/key", "this is not env:NAME"),
    ("an empty reference", top(secrets={"key": "env:"}), "secrets/key", "env:NAME, file:/path"),
    ("a secret by a relative path", top(secrets={"key": "file:x"}), "secrets/key", "file:/path"),
    ("secrets as list", top(secrets=["x"]), "secrets", "not a mapping of secrets"),
    ("a number as key", top(secrets={5: "env:A"}), "secrets/5", "put it in quotes"),
]

V1_TOP = first(top(jobs=[CALL]))


def v1(**fields: Any) -> dict[str, Any]:
    return {**V1_TOP, "jobs": [{**CALL, **fields}]}


VERSION_1: list[tuple[str, Any, str, str]] = [
    ("a command", first(top()), "jobs/0/command", "unknown key"),
    ("defaults", {**V1_TOP, "defaults": {}}, "defaults", "allowed are version, app and jobs"),
    ("a store", {**V1_TOP, "store": "sqlite:///x"}, "store", "unknown key"),
    (
        "257 jobs",
        {**V1_TOP, "jobs": [{**CALL, "name": f"j{i}"} for i in range(257)]},
        "jobs",
        "from 1 to 256",
    ),
    ("65 schedules", v1(schedules=["@daily"] * 65), "jobs/0/schedules", "from 1 to 64"),
    ("at", v1(at="2030-01-01T00:00Z"), "jobs/0/at", "unknown key"),
    ("enabled", v1(enabled=True), "jobs/0/enabled", "unknown key"),
    ("no request", first(only(schedule="@daily")), "jobs/0", "a job has a `request`; none is given"),
    ("no schedule", first(only(request=CALL["request"])), "jobs/0", "exactly one of schedule or schedules"),
    ("Queue", v1(policy={"concurrency": "Queue"}), "jobs/0/policy/concurrency", "Allow, Forbid or Replace"),
    ("no timeout", v1(policy={"timeout_seconds": 0}), "jobs/0/policy/timeout_seconds", "from 1 to 600"),
    ("601 seconds", v1(policy={"timeout_seconds": 601}), "jobs/0/policy/timeout_seconds", "from 1 to 600"),
    ("11 attempts", v1(policy={"retries": {"max_attempts": 11}}), "jobs/0/policy/retries/max_attempts", "10"),
    ("max 0", v1(policy={"retries": {"max_seconds": 0}}), "jobs/0/policy/retries/max_seconds", "from 1"),
    ("jitter", v1(policy={"retries": {"jitter": 0}}), "jobs/0/policy/retries/jitter", "unknown key"),
    ("catch_up", v1(policy={"catch_up": "all"}), "jobs/0/policy/catch_up", "unknown key"),
    ("auth of nothing", v1(auth={}), "jobs/0/auth/secret_refs", "missing"),
    ("9 secrets", v1(auth={"secret_refs": ["k"] * 9}), "jobs/0/auth/secret_refs", "at most 8"),
    (
        "a secret with a blank",
        v1(auth={"secret_refs": ["raw:hunter 2"]}),
        "jobs/0/auth/secret_refs/0",
        "this is",
    ),
    ("a seconds field", v1(schedule="0 0 2 * * *"), "jobs/0/schedule", "bad schedule"),
    ("Sunday as 7", v1(schedule="0 2 * * 7"), "jobs/0/schedule", "bad schedule"),
    ("every 59 s", v1(schedule="@every 59s"), "jobs/0/schedule", "at least 60"),
    (
        "a variable",
        v1(request={"url": "http://${HOST}/x"}),
        "jobs/0/request/url",
        '"http://${HOST}/x" is not',
    ),
]


def table(rows: list[tuple[str, Any, str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("document", "path", "fragment"), [row[1:] for row in rows], ids=[row[0] for row in rows]
    )


@table(VERSION_2)
def test_a_broken_manifest_is_refused_where_it_is_wrong(document: Any, path: str, fragment: str) -> None:
    check_refused(document, path, fragment)


@table(VERSION_1)
def test_version_1_is_exact(document: Any, path: str, fragment: str) -> None:
    check_refused(document, path, fragment)


def check_refused(document: Any, path: str, fragment: str) -> None:
    with pytest.raises(ManifestError) as caught:
        check_manifest(document, variables={"HOST": "My.Host", "A": "x/"})
    found = [(problem.path, problem.text) for problem in caught.value.problems]
    assert any(where == path and fragment in text for where, text in found), found
    assert "hunter" not in str(caught.value) and "12345" not in str(caught.value)


def test_the_same_manifests_without_their_faults_are_accepted() -> None:
    assert [j.name for j in check_manifest(top()).jobs] == ["demo.a"]
    assert [j.name for j in check_manifest(V1_TOP).jobs] == ["demo.a"]


def test_all_problems_are_reported_in_the_order_of_the_lines() -> None:
    document = job(timeout=1, command=5, schedule="x", timezone="X/Y", policy={"concurrency": "No", "dst": 3})
    lines = {"jobs/0/command": 9, "jobs/0/schedule": 3, "jobs/0": 2}
    with pytest.raises(ManifestError) as caught:
        check_manifest({**document, "app": "-"}, lines=lines)
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("app", 0),
        ("jobs/0/timeout", 2),
        ("jobs/0/policy/concurrency", 2),
        ("jobs/0/policy/dst", 2),
        ("jobs/0/timezone", 2),
        ("jobs/0/schedule", 3),
        ("jobs/0/command", 9),
    ]


def test_at_most_a_hundred_problems_are_shown() -> None:
    jobs = [{**JOB, "name": f"j{i}", "oops": 1} for i in range(500)]
    with pytest.raises(ManifestError) as caught:
        check_manifest(top(jobs=jobs))
    assert len(str(caught.value).splitlines()) == 101
    assert str(caught.value).endswith("… and more")


def test_no_value_of_any_field_escapes_as_another_exception() -> None:
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        10**400,
        "",
        "x",
        "${",
        [],
        [[]],
        {},
        {"": None},
        {5: 5},
    ]
    from detent.manifest.fields import JOB as TABLE

    for field in TABLE[2].fields:
        for value in values:
            for document in (job(**{field.name: value}), top(defaults={field.name: value})):
                try:
                    check_manifest(document)
                except ManifestError as error:
                    assert str(error)


def test_an_unset_variable_is_one_problem_not_two() -> None:
    with pytest.raises(ManifestError) as caught:
        check_manifest(job(queue="${NOPE}", command="${NOPE}"))
    assert [problem.path for problem in caught.value.problems] == ["jobs/0/command", "jobs/0/queue"]
