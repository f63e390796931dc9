"""The fields of a manifest for both versions, in the order of the published schema.

Version 2 has the fields of version 1 with some higher limits, and more fields after them.  The checker, the
canonical form and the JSON Schema read this table.
"""

import re
from typing import Any, NamedTuple

from detent.manifest.problems import INVALID
from detent.manifest.shapes import (
    NAME,
    OK,
    Arguments,
    Boolean,
    Checked,
    Choice,
    Either,
    Fault,
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
from detent.text import quote

WORK_FIELDS = ("command", "request", "call", "enqueue")  # a job has exactly one of these
TIME_FIELDS = ("schedule", "schedules", "at")  # a job has exactly one of these, or none if it has `after`
HOOKS = ("on_success", "on_failure", "on_skip", "on_late")
PROCESS_FIELDS = ("work_dir", "env", "user", "kill_after_seconds")  # for a command, or a call in a process
CALL_FIELDS = ("args", "isolation")
SHELL = ("/bin/sh", "-c")
REMIND_HOURS = 24
LATE_AFTER_S = 60  # the default of `late_after_seconds` if `on_late` is given

DAY_S = 86_400
YEAR_S = 366 * DAY_S
TIMEOUT_MAX_S = 7 * DAY_S
ATTEMPTS_MAX = 1_000
BACKOFF_S = (1, 60)  # the default first and longest wait between attempts
SECONDS_MAX = 2**31 - 1  # the limit of other durations, so that adding one to an instant never overflows
FILE_PATH_MAX = 4096
BODY_MAX = 2**20
COMMAND_MAX = 100_000  # Linux limits one argument of a program to 128 KiB
ARGUMENTS_MAX = 65_536  # a pipe to a process always takes this much at once

_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_URL = (
    r"https?://([A-Za-z0-9._~%!$&'()*+,;=:-]*@)?"
    r"([A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?"
)


class Limits(NamedTuple):
    """The limits that differ between the versions."""

    jobs: int
    schedules: int
    timeout_low: int
    timeout_high: int
    attempts: int


LIMITS = {
    1: Limits(256, 64, timeout_low=1, timeout_high=600, attempts=10),
    2: Limits(100_000, 1000, timeout_low=0, timeout_high=TIMEOUT_MAX_S, attempts=ATTEMPTS_MAX),
}


def _url_fault(url: str) -> Fault:
    match = re.fullmatch(_URL, url)
    port = int(match[3][1:]) if match and match[3] else 0
    return (f"port {port} is not in 0–65535", "") if port > 65535 else OK


def _first_word_fault(words: Any) -> Fault:
    return OK if type(words) is not list or words[0] else ("the first word is empty", "it names the program")


def _hook_fault(hook: Any) -> Fault:
    if type(hook) is not str:
        return OK
    from detent.manifest.alerts import address_fault, service_of  # late, here and below: few jobs have hooks

    if service_of(hook):
        return address_fault(hook)
    if hook.startswith("-"):
        return "a list here is a list of hooks", "for the words of one command write [[program, word, …]]"
    if not hook.startswith(("http://", "https://")):
        return OK
    return _url_fault(hook) if re.fullmatch(_URL, hook) else (f"{quote(hook)} is not a URL with a host", "")


def _mapping_fault(hook: Any) -> Fault:
    if ("url" in hook) == ("to" in hook):
        return "a hook that is a mapping has either `url` (a webhook) or `to` (an alert)", ""
    if "to" in hook:
        return _alert_fault(hook)
    if "title" in hook:
        return "`title` is for alerts, and this hook has a `url`", "write `to` instead of `url`"
    body, headers = hook.get("body", ""), hook.get("headers", {})
    if not body or INVALID in (body, headers):
        return OK
    from detent.manifest.webhooks import body_fault  # late: few webhooks have their own body

    return body_fault(body, headers)


def _alert_fault(hook: Any) -> Fault:
    from detent.manifest.alerts import NAMES
    from detent.manifest.placeholders import placeholder_fault

    if "headers" in hook:
        return "`headers` are for webhooks, and this hook has `to`", "write `url` instead of `to`"
    texts = [hook[name] for name in ("title", "body") if hook.get(name, INVALID) is not INVALID]
    return next((fault for text in texts if (fault := placeholder_fault(text, NAMES))[0]), OK)


def _address_fault(address: str) -> Fault:
    from detent.manifest.alerts import address_fault, service_of

    if service_of(address):
        return address_fault(address)
    return "this is not the address of an alert", "write slack://…, mailto://… or another address of Apprise"


def _ping_fault(url: str) -> Fault:
    from detent.manifest.placeholders import placeholder_fault

    fault = placeholder_fault(url, ("job", "app"))
    return fault if fault[0] else _url_fault(url)


NAME_SHAPE = Text(
    high=2000,
    pattern=NAME,
    allowed="a name: a lower-case letter, then up to 62 lower-case letters, digits or hyphens",
)
_TASK = Text(high=200, pattern="[A-Za-z_][A-Za-z0-9_.-]*", allowed="a task's name, like send-invoice")
_SCHEDULE = Text(high=1000, low=1, allowed="a schedule, like 0 2 * * * or @every 5m", expands=False)
_WORDS = ListOf(Text(high=COMMAND_MAX), low=1, high=1000, noun="word")
_URL_ALLOWED = "an http:// or https:// URL with a host, with anything but plain ASCII percent-encoded"
_URL_SHAPE = Checked(Text(high=8000, pattern=_URL, allowed=_URL_ALLOWED), _url_fault)
_PING = Checked(Text(high=8000, pattern=_URL, allowed=_URL_ALLOWED), _ping_fault)
_HEADERS = MapOf(
    Text(high=200, pattern="[A-Za-z0-9!#$%&'*+.^_`|~-]+", allowed="a header's name", expands=False),
    Text(high=8000, pattern=r"[^\x00-\x08\x0a-\x1f\x7f]*", allowed="a text on one line"),
    high=100,
    noun="header",
)


def _command_shape(allowed: str, mapping: Checked | None = None) -> Checked:
    shell = Text(high=COMMAND_MAX, low=1, allowed=allowed.removesuffix(","))
    either = Either(shell, _WORDS, list, f"{allowed} or a list of words", mapping)
    return Checked(either, _first_word_fault)


def _hooks_shape() -> ListOf:
    allowed = "a command for the shell, a URL that gets a POST, an alert's address, a mapping with url or to,"
    hook = Checked(_command_shape(allowed, Checked(HOOK_MAPPING, _mapping_fault)), _hook_fault)
    return ListOf(hook, low=1, high=16, noun="hook", accepts_single=True)


def _record(
    version: int, first: tuple[Field, ...], added: tuple[Field, ...], required: tuple[str, ...] = ()
) -> Record:
    """Return a record with the fields of version 1 and, for version 2, the fields that it added."""
    later = _new_record(*added).fields if version > 1 else ()
    return Record((*first, *later), required)


def _new_record(*fields: Field, required: tuple[str, ...] = ()) -> Record:
    """Return a record that version 2 added."""
    return Record((field._replace(since=2) for field in fields), required)


_ADDRESS = Checked(Text(high=8000, low=1, allowed="an address", secret=True), _address_fault)
HOOK_MAPPING = _new_record(
    Field("url", _URL_SHAPE, about="of a webhook: http:// or https:// with a host"),
    Field("headers", _HEADERS, {}, "of a webhook: sent with the request"),
    Field("body", Text(high=BODY_MAX), "", "with {{placeholders}}; empty: the default"),
    Field("to", _ADDRESS, about="of an alert: slack://…, mailto://… or another address of Apprise"),
    Field("title", Text(high=1000), "", "of an alert, with {{placeholders}}; empty: the default"),
)
REQUEST = Record(
    (
        Field("method", Choice(("GET", "POST", "PUT", "PATCH", "DELETE")), "POST", "the HTTP method"),
        Field("url", _URL_SHAPE, about="http:// or https:// with a host"),
        Field("headers", _HEADERS, {}, "sent with the request; detent's own headers take precedence"),
        Field("body", Text(high=BODY_MAX), "", "sent unchanged"),
    ),
    required=("url",),
)
ENQUEUE = _new_record(
    Field("queue", NAME_SHAPE, "default", "the queue of the message"),
    Field("task", _TASK, about="the task to run"),
    Field("args", Arguments(ARGUMENTS_MAX), [], "a list, or a mapping by name"),
    Field("priority", Choice(("high", "normal", "low")), "normal", "within its queue"),
    Field("expires_seconds", Number(0, YEAR_S), 0, "a message that starts later is missed; 0: no limit"),
    required=("task",),
)


def _retries(version: int) -> Record:
    statuses = ListOf(Integer(300, 599), low=0, high=100, noun="status")
    codes = ListOf(Integer(1, 255), low=0, high=255, noun="exit code")
    low_s, high_s = BACKOFF_S
    first = (
        Field("max_attempts", Integer(1, LIMITS[version].attempts), 3, "including the first attempt"),
        Field("min_seconds", Integer(0, SECONDS_MAX), low_s, "the wait after the first attempt"),
        Field("max_seconds", Integer(1, SECONDS_MAX), high_s, "the longest wait between attempts"),
    )
    added = (
        Field("jitter", Number(0, 1), 0, "the fraction by which waits vary at random"),
        Field("on_status", statuses, [], "more HTTP statuses to retry"),
        Field("on_exit_codes", codes, [], "the only exit codes to retry"),
    )
    return _record(version, first, added)


def _policy(version: int) -> Record:
    limits = LIMITS[version]
    concurrency = ("Allow", "Forbid", "Replace") + (("Queue",) if version > 1 else ())
    timeout = Integer(limits.timeout_low, limits.timeout_high)
    first = (
        Field("concurrency", Choice(concurrency), "Forbid", "what a fire does if its lane is full"),
        Field("concurrency_scope", Choice(("host", "global")), "host", "the lane that a trigger uses"),
        Field("timeout_seconds", timeout, 60, "the limit for one attempt"),
        Field("retries", _retries(version), {}, "how failed attempts are retried"),
    )
    added = (
        Field("max_running", Integer(1, 10_000), 1, "how many fires of the job run at the same time"),
        Field("catch_up", Choice(("skip", "latest", "all")), "latest", "which fires run after an outage"),
        Field("start_deadline_seconds", Number(0, YEAR_S), 0, "a fire that starts later is missed; 0: never"),
        Field("on_lost", Choice(("skip", "rerun")), "skip", "whether a lost attempt runs again"),
        Field("claim_seconds", Number(CLAIM_MIN_S, DAY_S), 30, "lifetime of a claim unless renewed"),
        Field("dst", Choice(("vixie", "skip", "twice", "utc")), "vixie", "how clock changes affect fires"),
    )
    return _record(version, first, added)


def _auth(version: int) -> Record:
    pattern = "[a-zA-Z][a-zA-Z0-9_:./-]{0,127}"
    allowed = "env:NAME, file:/path, raw:text or a name"
    reference = Text(high=2000, pattern=pattern, allowed=allowed, secret=True)  # `raw:` contains the secret
    references = ListOf(reference, low=0, high=8, noun="secret reference")
    first = (Field("secret_refs", references, [], "the secrets; the first one signs"),)
    added = (Field("scheme", Choice(("cron", "standard-webhooks")), "cron", "the format of the signature"),)
    return _record(version, first, added, ("secret_refs",))


def _job(version: int) -> Record:
    schedules = ListOf(_SCHEDULE, low=1, high=LIMITS[version].schedules, noun="schedule")
    timezone = Text(high=100, low=1, allowed="the name of a time zone, like Europe/Berlin")
    first = (
        Field("name", NAME_SHAPE, about="unique in this manifest"),
        Field("schedule", _SCHEDULE, about="a single schedule"),
        Field("schedules", schedules, about="several schedules"),
        Field("timezone", timezone, default="UTC", about="an IANA name"),
        Field("request", REQUEST, about="work: an HTTP request"),
        Field("policy", _policy(version), {}, "how its fires run"),
        Field("auth", _auth(version), {}, "how requests are signed"),
    )
    return _record(version, first, _work_fields() + _further_fields(), ("name",))


def _work_fields() -> tuple[Field, ...]:
    name, allowed = "(?!DETENT_)[A-Za-z_][A-Za-z0-9_]*", "a variable's name (DETENT_… are ours)"
    variable = Text(high=200, pattern=name, allowed=allowed, expands=False)
    allowed = "a function as package.module:function, like billing.jobs:send_invoices"
    function = Text(high=500, pattern=f"{_DOTTED}:{_DOTTED}", allowed=allowed)
    user = Text(high=64, pattern="[A-Za-z0-9_][A-Za-z0-9_.@-]*", allowed="the name of a user")
    isolation = Choice(("process", "thread", "loop"))
    command = _command_shape("a command for the shell")
    directory = Text(high=FILE_PATH_MAX, low=1, allowed="a directory")
    variables = MapOf(variable, Text(high=COMMAND_MAX), high=1000, noun="variable")
    return (
        Field("command", command, about="work: a text for the shell, or a list of words"),
        Field("shell", _WORDS, [*SHELL], "runs commands and hooks that are texts"),
        Field("call", function, about="work: a Python function, package.module:function"),
        Field("args", Arguments(ARGUMENTS_MAX), [], "of the call: a list, or a mapping by name"),
        Field("isolation", isolation, "process", "where a call runs; only a process can be killed"),
        Field("enqueue", ENQUEUE, about="work: a message for a queue, which a worker runs"),
        Field("work_dir", directory, about="the working directory of the command or call"),
        Field("env", variables, {}, "environment variables of the command or call"),
        Field("user", user, about="the user that runs the command or call"),
        Field("kill_after_seconds", Number(0, 3600), 10, "time from SIGTERM to SIGKILL"),
        Field("children", Choice(("end", "leave")), "end", "processes that outlive the command"),
    )


def _further_fields() -> tuple[Field, ...]:
    tag = Text(high=63, low=1, allowed="a tag")
    others = ListOf(NAME_SHAPE, low=1, high=64, noun="job", accepts_single=True)
    return (
        Field("at", Instant(), about="the instant of a job that runs once"),
        Field("after", others, about="jobs whose success starts this one"),
        Field("starts_at", Instant(), about="no fires before"),
        Field("ends_at", Instant(), about="no fires after"),
        Field("enabled", Boolean(), True, "false: it does not fire"),
        Field("description", Text(high=4000), "", "for people"),
        Field("tags", ListOf(tag, low=0, high=32, noun="tag"), [], "for people"),
        Field("queue", NAME_SHAPE, "default", "only nodes that serve it run the job"),
        Field("run_on", Choice(("one", "every")), "one", "one node, or every host"),
        *(Field(name, _hooks_shape(), about="commands, webhooks or alerts") for name in HOOKS),
        Field("late_after_seconds", Number(1, YEAR_S), LATE_AFTER_S, "the delay before `on_late` is called"),
        Field("remind_hours", Number(0, YEAR_S // 3600), REMIND_HOURS, "the time between reminders; 0: none"),
        Field("ping", _PING, about="a URL of a monitor that learns of start, success and failure"),
    )


_STORE_URL = Text(
    high=4000,
    pattern=r"[a-z][a-z0-9+]*://[\s\S]*",
    allowed="a store's URL, like sqlite:///path/detent.db",
    secret=True,
)
STORE = _new_record(
    Field("url", _STORE_URL, about="the store that records fires"),
    Field("key_prefix", Text(high=100), "", "for a store that is shared with others"),
    Field("wait_replicas", Integer(0, 10), 0, "replicas that must confirm a write"),
    Field("require", Choice(("any", "full")), "any", "full: refuse a store that can lose data"),
)
_NODE_ID = Text(high=200, pattern="[A-Za-z0-9][A-Za-z0-9_.-]*", allowed="a name without spaces or slashes")
NODE = _new_record(
    Field("id", _NODE_ID, about="the node's name; by default the host's"),
    Field("max_running", Integer(1, 100_000), 32, "how many fires run at the same time"),
    Field("drain_seconds", Number(0, DAY_S), 25, "how long work may continue when the node stops"),
    Field("grace_seconds", Number(0, DAY_S), 0, "how long a lane stays taken after a fire"),
    Field("keep_days", Integer(1, 36_500), 30, "how long history is kept"),
    Field("keep_fires", Integer(1, 1_000_000), 1000, "how many fires of a job are kept"),
)
SECRETS = MapOf(
    Text(high=128, pattern="[a-zA-Z][a-zA-Z0-9_./-]*", allowed="a secret's name", expands=False),
    Text(
        high=BODY_MAX,
        pattern=r"(?!env:$|file:(?!/)|raw:$)[\s\S]+",
        allowed="env:NAME, file:/path, raw:text or the secret itself",
        secret=True,
    ),
    high=1000,
    noun="secret",
)
_STORE_OR_URL = Either(_STORE_URL, STORE, dict, "a URL or a mapping with it")
MACHINE = _new_record(
    Field("store", _STORE_OR_URL, about="the store that records fires"),
    Field("node", NODE, about="how a node behaves"),
    Field("secrets", SECRETS, about="names for secrets"),
    Field("dashboard_url", _URL_SHAPE, about="for links in alerts"),
)


def _manifest(version: int) -> Record:
    job = JOB[version]
    first = (
        Field("version", Integer(version, version), about="of the manifest format"),
        Field("app", NAME_SHAPE, about="the app's name"),
        Field("jobs", ListOf(job, low=1, high=LIMITS[version].jobs, noun="job"), about="the jobs"),
    )
    defaults = Record(field for field in job.fields if field.name not in ("name", "after"))
    added = (Field("defaults", defaults, about="fields for all jobs"), *MACHINE.fields)
    return _record(version, first, added, ("version", "app", "jobs"))


JOB = {version: _job(version) for version in LIMITS}
MANIFEST = {version: _manifest(version) for version in LIMITS}
