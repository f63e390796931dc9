"""The table of a manifest's fields, in the order of the published schema, for both versions.

Version 1 is exact.  Version 2 has all of it, with some limits lifted and more fields after it.
Every limit has its place here; the checker, the canonical form and the JSON Schema read it.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from detent.manifest.shapes import (
    INVALID,
    NAME,
    Arguments,
    Boolean,
    Checked,
    Choice,
    Either,
    Field,
    Instant,
    Integer,
    ListOf,
    MapOf,
    Number,
    Record,
    Text,
)
from detent.rules.trust import CLAIM_MIN_S

WORK_FIELDS = ("command", "request", "call", "enqueue")  # a job does exactly one of these
TIME_FIELDS = (
    "schedule",
    "schedules",
    "at",
)  # and has exactly one of these, or none where it comes `after` others
HOOKS = ("on_success", "on_failure", "on_skip", "on_late")
PROCESS_FIELDS = ("work_dir", "env", "user", "kill_after_seconds")  # a command, or a call in a process
CALL_FIELDS = ("args", "isolation")
SHELL = ("/bin/sh", "-c")
_TASK = "[A-Za-z_][A-Za-z0-9_.-]*"
LATE_AFTER_S = 60  # where `on_late` is given and `late_after_seconds` is not

DAY_S = 86_400
YEAR_S = 366 * DAY_S
TIMEOUT_MAX_S = 7 * DAY_S
ATTEMPTS_MAX = 1_000
BACKOFF_S = (1, 60)  # the first and the longest wait between attempts, where the manifest does not say
SECONDS_MAX = 2**31 - 1  # where the contract names no ceiling: what still adds up to an instant
FILE_PATH_MAX = 4096
BODY_MAX = 2**20
COMMAND_MAX = 100_000  # one word of a program may have 128 KiB on Linux
ARGUMENTS_MAX = 65_536  # what a pipe to a process surely takes at once

_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_URL = (
    r"https?://([A-Za-z0-9._~%!$&'()*+,;=:-]*@)?"
    r"([A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?"
)


class Limits(NamedTuple):
    """Where the versions differ in a number."""

    jobs: int
    schedules: int
    timeout_low: int
    timeout_high: int
    attempts: int


LIMITS = {
    1: Limits(256, 64, timeout_low=1, timeout_high=600, attempts=10),
    2: Limits(100_000, 1000, timeout_low=0, timeout_high=TIMEOUT_MAX_S, attempts=ATTEMPTS_MAX),
}


def name_shape() -> Text:
    allowed = "a name: a lower-case letter, then up to 62 lower-case letters, digits or hyphens"
    return Text(high=2000, pattern=NAME, allowed=allowed)


def _port_fault(url: str) -> str:
    match = re.fullmatch(_URL, url)
    port = int(match[3][1:]) if match and match[3] else 0
    return f"port {port} is not in 0–65535" if port > 65535 else ""


def _url_shape() -> Checked:
    allowed = "an http:// or https:// URL with a host, with anything but plain ASCII percent-encoded"
    return Checked(Text(high=8000, pattern=_URL, allowed=allowed), _port_fault)


def _schedule_shape() -> Text:
    return Text(high=1000, low=1, allowed="a schedule, like 0 2 * * * or @every 5m", expands=False)


def _words(noun: str) -> ListOf:
    return ListOf(Text(high=COMMAND_MAX), low=1, high=1000, noun=noun)


def _function_shape() -> Text:
    allowed = "a function as package.module:function, like billing.jobs:send_invoices"
    return Text(high=500, pattern=f"{_DOTTED}:{_DOTTED}", allowed=allowed)


def _first_word_fault(words: Any) -> str:
    return "" if type(words) is not list or words[0] else "the first word is empty; it names the program"


def _command_shape(allowed: str, mapping: Checked | None = None) -> Checked:
    shell = Text(high=COMMAND_MAX, low=1, allowed=allowed.removesuffix(","))
    either = Either(shell, _words("word"), list, f"{allowed} or a list of words", mapping)
    return Checked(either, _first_word_fault)


def _hook_fault(hook: Any) -> str:
    if type(hook) is str and hook.startswith("-"):
        return "a list here is a list of hooks; for the words of one command write [[program, word, …]]"
    if type(hook) is str and hook.startswith(("http://", "https://")):
        fits = re.fullmatch(_URL, hook)
        return _port_fault(hook) if fits else "it starts like a URL, but is none with a host"
    return ""


def _hooks_shape() -> ListOf:
    allowed = "a command for the shell, a URL that gets a POST, a mapping with url, headers and body,"
    hook = Checked(_command_shape(allowed, Checked(WEBHOOK, _webhook_fault)), _hook_fault)
    return ListOf(hook, low=1, high=16, noun="hook", accepts_single=True)


def _webhook() -> Record:
    fields = (
        Field("url", _url_shape(), about="http:// or https:// with a host", since=2),
        Field("headers", _headers_shape(), {}, "sent with it", since=2),
        Field("body", Text(high=BODY_MAX), "", "with {{placeholders}}; empty: the fire as JSON", since=2),
    )
    return Record(fields, required=("url",))


def _webhook_fault(hook: Any) -> str:
    if "url" not in hook:
        return "its `url` is missing"
    body, headers = hook.get("body", ""), hook.get("headers", {})
    if not body or INVALID in (body, headers):
        return ""
    from detent.manifest.webhooks import body_fault  # late: few have a body of their own

    return body_fault(body, headers)


def _headers_shape() -> MapOf:
    header = Text(high=200, pattern="[A-Za-z0-9!#$%&'*+.^_`|~-]+", allowed="a header's name", expands=False)
    text = Text(high=8000, pattern=r"[^\x00-\x08\x0a-\x1f\x7f]*", allowed="a text on one line")
    return MapOf(header, text, high=100, noun="header")


def _request(version: int) -> Record:
    fields = (
        Field("method", Choice(("GET", "POST", "PUT", "PATCH", "DELETE")), "POST", "how it is asked"),
        Field("url", _url_shape(), about="http:// or https:// with a host"),
        Field("headers", _headers_shape(), {}, "sent with it; ours win"),
        Field("body", Text(high=BODY_MAX), "", "sent as it is"),
    )
    return Record(fields, required=("url",))


def _retries(version: int) -> Record:
    statuses = ListOf(Integer(300, 599), low=0, high=100, noun="status")
    codes = ListOf(Integer(1, 255), low=0, high=255, noun="exit code")
    fields = (
        Field("max_attempts", Integer(1, LIMITS[version].attempts), default=3, about="the first included"),
        Field(
            "min_seconds",
            Integer(0, SECONDS_MAX),
            default=BACKOFF_S[0],
            about="the wait after the first attempt",
        ),
        Field(
            "max_seconds",
            Integer(1, SECONDS_MAX),
            default=BACKOFF_S[1],
            about="the longest wait between attempts",
        ),
        Field(
            "jitter", Number(0, 1), 0, "by this fraction the wait is shorter or longer, at random", since=2
        ),
        Field("on_status", statuses, [], "further HTTP statuses worth another attempt", since=2),
        Field("on_exit_codes", codes, [], "the only exit codes worth another attempt", since=2),
    )
    return Record(field for field in fields if field.since <= version)


def _policy(version: int) -> Record:
    limits = LIMITS[version]
    concurrency = ("Allow", "Forbid", "Replace") + (("Queue",) if version > 1 else ())
    fields = (
        Field("concurrency", Choice(concurrency), "Forbid", "what a fire does that finds its lane full"),
        Field("concurrency_scope", Choice(("host", "global")), "host", "whose lane a trigger uses"),
        Field("timeout_seconds", Integer(limits.timeout_low, limits.timeout_high), 60, "for one attempt"),
        Field("retries", _retries(version), {}, "what follows a failed attempt"),
        Field("max_running", Integer(1, 10_000), 1, "how many fires of the job run together", since=2),
        Field("catch_up", Choice(("skip", "latest", "all")), "latest", "what follows an outage", since=2),
        Field("start_deadline_seconds", Number(0, YEAR_S), 0, "later, a fire is missed; 0: never", since=2),
        Field("on_lost", Choice(("skip", "rerun")), "skip", "what follows a lost attempt", since=2),
        Field("claim_seconds", Number(CLAIM_MIN_S, DAY_S), 30, "lifetime of a claim unless renewed", since=2),
        Field("dst", Choice(("vixie", "skip", "twice", "utc")), "vixie", "at a change of offset", since=2),
    )
    return Record(field for field in fields if field.since <= version)


def _auth(version: int) -> Record:
    pattern = "[a-zA-Z][a-zA-Z0-9_:./-]{0,127}"
    # A message does not repeat it: `raw:` holds the secret itself.
    allowed = "env:NAME, file:/path, raw:text or a name"
    reference = Text(high=2000, pattern=pattern, allowed=allowed, secret=True)
    references = ListOf(reference, low=0, high=8, noun="secret reference")  # an empty list: none
    scheme = Choice(("cron", "standard-webhooks"))
    fields = (
        Field("secret_refs", references, [], "where the secrets are; the first signs"),
        Field("scheme", scheme, "cron", "how it is signed: as in version 1, or otherwise", since=2),
    )
    return Record((field for field in fields if field.since <= version), required=("secret_refs",))


def _job_fields(version: int) -> tuple[Field, ...]:
    limits = LIMITS[version]
    schedules = ListOf(_schedule_shape(), low=1, high=limits.schedules, noun="schedule")
    timezone = Text(high=100, low=1, allowed="the name of a time zone, like Europe/Berlin")
    first = (
        Field("name", name_shape(), about="unique in this manifest"),
        Field("schedule", _schedule_shape(), about="when, if there is one schedule"),
        Field("schedules", schedules, about="when, if there are several"),
        Field("timezone", timezone, default="UTC", about="an IANA name"),
        Field("request", _request(version), about="work: an HTTP request"),
        Field("policy", _policy(version), {}, "what governs its fires"),
        Field("auth", _auth(version), {}, "how requests are signed"),
    )
    return first if version == 1 else first + _work_fields() + _further_fields()


def _work_fields() -> tuple[Field, ...]:
    variable = Text(
        high=200,
        pattern="(?!DETENT_)[A-Za-z_][A-Za-z0-9_]*",
        allowed="a variable's name (DETENT_… are ours)",
        expands=False,
    )
    user = Text(high=64, pattern="[A-Za-z0-9_][A-Za-z0-9_.@-]*", allowed="the name of a user")
    isolation = Choice(("process", "thread", "loop"))
    command = _command_shape("a command for the shell")
    directory = Text(high=FILE_PATH_MAX, low=1, allowed="a directory")
    variables = MapOf(variable, Text(high=COMMAND_MAX), high=1000, noun="variable")
    return (
        Field("command", command, about="work: for the shell, or words without one", since=2),
        Field("shell", _words("word"), [*SHELL], "runs a command that is a text, and text hooks", since=2),
        Field("call", _function_shape(), about="work: a Python function, package.module:function", since=2),
        Field("args", Arguments(ARGUMENTS_MAX), [], "of the call: a list, or a mapping by name", since=2),
        Field("isolation", isolation, "process", "where a call runs; only a process can be killed", since=2),
        Field("enqueue", _enqueue(), about="work: a message for a queue, which a worker runs", since=2),
        Field("work_dir", directory, about="where the command or call runs", since=2),
        Field("env", variables, {}, "variables that the command or call gets", since=2),
        Field("user", user, about="whom the command or call runs as", since=2),
        Field("kill_after_seconds", Number(0, 3600), 10, "from SIGTERM to SIGKILL", since=2),
        Field("children", Choice(("end", "leave")), "end", "processes that outlive the command", since=2),
    )


def _enqueue() -> Record:
    task = Text(high=200, pattern=_TASK, allowed="a task's name, like send-invoice")
    return Record(
        (
            Field("queue", name_shape(), "default", "where it is put", since=2),
            Field("task", task, about="which is to run", since=2),
            Field("args", Arguments(ARGUMENTS_MAX), [], "a list, or a mapping by name", since=2),
            Field("priority", Choice(("high", "normal", "low")), "normal", "within its queue", since=2),
            Field("expires_seconds", Number(0, YEAR_S), 0, "not begun by then, it is missed", since=2),
        ),
        required=("task",),
    )


def _further_fields() -> tuple[Field, ...]:
    tag = Text(high=63, low=1, allowed="a tag")
    others = ListOf(name_shape(), low=1, high=64, noun="job", accepts_single=True)
    return (
        Field("at", Instant(), about="when, if it is once only", since=2),
        Field("after", others, about="jobs whose success puts a fire of this one", since=2),
        Field("starts_at", Instant(), about="no fires before", since=2),
        Field("ends_at", Instant(), about="no fires after", since=2),
        Field("enabled", Boolean(), True, "false: it has no fires", since=2),
        Field("description", Text(high=4000), "", "for people", since=2),
        Field("tags", ListOf(tag, low=0, high=32, noun="tag"), [], "for people", since=2),
        Field("queue", name_shape(), "default", "only nodes that serve it run the job", since=2),
        Field("run_on", Choice(("one", "every")), "one", "one node, or every host", since=2),
        *(Field(name, _hooks_shape(), about="commands, URLs or webhooks to call", since=2) for name in HOOKS),
        Field("late_after_seconds", Number(1, YEAR_S), LATE_AFTER_S, "when `on_late` is called", since=2),
    )


def _store() -> Record:
    pattern = r"[a-z][a-z0-9+]*://[\s\S]*"
    allowed = "a store's URL, like sqlite:///path/detent.db"
    url = Text(high=4000, pattern=pattern, allowed=allowed, secret=True)
    return Record(
        (
            Field("url", url, about="where fires are kept", since=2),
            Field("key_prefix", Text(high=100), "", "for a store that is shared with others", since=2),
            Field("wait_replicas", Integer(0, 10), 0, "that must have a write before it counts", since=2),
            Field("require", Choice(("any", "full")), "any", "full: refuse a store that may forget", since=2),
        )
    )


def _node() -> Record:
    node_id = Text(high=200, pattern="[A-Za-z0-9][A-Za-z0-9_.-]*", allowed="a name without spaces or slashes")
    return Record(
        (
            Field("id", node_id, about="the node's name; by default the host's", since=2),
            Field("max_running", Integer(1, 100_000), 32, "how much work runs together", since=2),
            Field("drain_seconds", Number(0, DAY_S), 25, "how long work may go on when we stop", since=2),
            Field("grace_seconds", Number(0, DAY_S), 0, "how long a lane stays taken after a fire", since=2),
            Field("keep_days", Integer(1, 36_500), 30, "how long history is kept", since=2),
            Field("keep_fires", Integer(1, 1_000_000), 1000, "how many fires of a job are kept", since=2),
        )
    )


def _secrets() -> MapOf:
    name = Text(high=128, pattern="[a-zA-Z][a-zA-Z0-9_./-]*", allowed="a secret's name", expands=False)
    allowed = "env:NAME, file:/path, raw:text or the secret itself"
    value = Text(high=BODY_MAX, pattern=r"(?!env:$|file:(?!/)|raw:$)[\s\S]+", allowed=allowed, secret=True)
    return MapOf(name, value, high=1000, noun="secret")


def _manifest(version: int) -> Record:
    job = JOB[version]
    first = (
        Field("version", Integer(version, version), about="of this format"),
        Field("app", name_shape(), about="the app's name"),
        Field("jobs", ListOf(job, low=1, high=LIMITS[version].jobs, noun="job"), about="what is to run"),
    )
    defaults = Record(field for field in job.fields if field.name not in ("name", "after"))
    further = (Field("defaults", defaults, about="any field of a job, for all jobs"), *MACHINE.fields)
    return Record(first if version == 1 else first + further, required=("version", "app", "jobs"))


WEBHOOK = _webhook()
STORE = _store()
NODE = _node()
MACHINE = Record(
    (
        Field(
            "store",
            Either(STORE.fields[0].shape, STORE, dict, "a URL or a mapping with it"),
            about="where fires are kept",
            since=2,
        ),
        Field("node", NODE, about="how a node behaves", since=2),
        Field("secrets", _secrets(), about="names for secrets", since=2),
    )
)


class ByVersion(dict[int, Record]):
    """Made for the version that is asked for: few read both."""

    def __init__(self, make: Callable[[int], Record]) -> None:
        self._make = make

    def __missing__(self, version: int) -> Record:
        self[version] = self._make(version)
        return self[version]


JOB = ByVersion(lambda version: Record(_job_fields(version), required=("name",)))
MANIFEST = ByVersion(_manifest)
