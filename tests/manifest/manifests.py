"""Sound manifests to test with: random ones of both versions."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
DOLLARS = st.text("$${}ab:- ", max_size=12).map(lambda text: text.replace("$", "$$"))
SCHEDULES = st.sampled_from(["@daily", "0 2 * * *", "*/5 * * * MON-FRI", "@every 90s", "0 0 1 JAN ?"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])
INSTANTS = st.sampled_from(["2030-01-01T00:00Z", "2031-12-24T18:00:00+01:00"])


def some(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


def times(version: int) -> st.SearchStrategy[dict[str, Any]]:
    ways = [
        some({"schedule": SCHEDULES}, {}),
        some({"schedules": st.lists(SCHEDULES, min_size=1, max_size=3)}, {}),
    ]
    return st.one_of(ways + ([some({"at": INSTANTS}, {})] if version > 1 else []))


def requests() -> st.SearchStrategy[dict[str, Any]]:
    request = some(
        {"url": st.sampled_from(["http://h/x", "https://u:p@[::1]:8443/a?b=%20", "http://127.0.0.1"])},
        {
            "method": st.sampled_from(["GET", "POST", "DELETE"]),
            "headers": st.dictionaries(st.sampled_from(["X-B", "Accept", "b"]), TEXTS.map(str.strip)),
            "body": TEXTS.map(lambda text: text.replace("$", "")),
        },
    )
    references = st.lists(st.sampled_from(["env:KEY", "file:/k", "raw:abc", "name"]), min_size=1, max_size=3)
    return some({"request": request}, {"auth": some({"secret_refs": references}, {})})


def commands() -> st.SearchStrategy[dict[str, Any]]:
    webhook = some(
        {"url": st.just("http://h/hook")},
        {"headers": st.just({"B": "2", "a": "1"}), "body": st.sampled_from(["", '{"text": "{{fire}}"}'])},
    )
    hook = st.one_of(st.just("http://h/hook"), st.just("echo $JOB"), st.just(["notify", "--now"]), webhook)
    words = st.lists(DOLLARS, min_size=1, max_size=3).filter(lambda words: words[0] != "")
    return some(
        {"command": st.one_of(DOLLARS.filter(bool), words)},
        {
            "env": st.dictionaries(st.sampled_from(["A", "B", "C"]), DOLLARS),
            "kill_after_seconds": st.sampled_from([0, 0.5, 10, 10.0, 60]),
            "children": st.sampled_from(["end", "leave"]),
            "on_failure": st.one_of(st.just("echo"), st.lists(hook, min_size=1, max_size=3)),
            "on_late": st.just(["echo late"]),
            "late_after_seconds": st.sampled_from([60, 5]),
        },
    )


def calls() -> st.SearchStrategy[dict[str, Any]]:
    texts = DOLLARS.filter(lambda text: "${" not in text.replace("$$", ""))
    values = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), texts),
        lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
        max_leaves=4,
    )
    args = st.one_of(st.lists(values, max_size=2), st.dictionaries(TEXTS, values, max_size=2))
    function = st.sampled_from(["billing:send", "a.b_c:d.E"])
    alone = some({"call": function}, {"args": args, "user": st.just("nobody"), "work_dir": st.just("/x")})
    inside = some({"call": function, "isolation": st.sampled_from(["thread", "loop"])}, {"args": args})
    return st.one_of(alone, inside)


def messages() -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        "queue": st.sampled_from(["default", "mail"]),
        "args": st.sampled_from([[], [1, {"b": 1, "a": None}], {"to": "ü"}]),
        "priority": st.sampled_from(["high", "normal"]),
        "expires_seconds": st.sampled_from([0, 60, 0.5]),
    }
    auth = some({"secret_refs": st.just(["env:KEY"])}, {})
    return some({"enqueue": some({"task": st.sampled_from(["send", "shop.send_2"])}, fields)}, {"auth": auth})


def policies(version: int) -> st.SearchStrategy[dict[str, Any]]:
    retries: dict[str, Any] = {
        "max_attempts": st.integers(1, 10),
        "min_seconds": st.integers(0, 30),
        "max_seconds": st.integers(30, 90),
    }
    fields: dict[str, Any] = {
        "concurrency": st.sampled_from(["Allow", "Forbid", "Replace"]),
        "concurrency_scope": st.sampled_from(["host", "global"]),
        "timeout_seconds": st.integers(1, 600),
    }
    if version > 1:
        retries |= {"jitter": st.sampled_from([0, 0.25, 1, 0.0]), "on_status": st.just([429])}
        fields |= {
            "max_running": st.integers(1, 3),
            "catch_up": st.sampled_from(["skip", "latest", "all"]),
            "claim_seconds": st.sampled_from([30, 30.0, 45.5]),
        }
    return some({}, {**fields, "retries": some({}, retries)})


def further() -> st.SearchStrategy[dict[str, Any]]:
    return some(
        {},
        {
            "description": TEXTS.map(lambda text: text.replace("$", "")),
            "tags": st.lists(st.sampled_from(["a", "ü"]), max_size=2),
            "enabled": st.booleans(),
            "queue": st.sampled_from(["default", "db"]),
            "run_on": st.sampled_from(["one", "every"]),
        },
    )


@st.composite
def jobs(draw: st.DrawFn, version: int) -> dict[str, Any]:
    work = draw(requests() if version == 1 else st.one_of(requests(), commands(), calls(), messages()))
    rest = draw(some({}, {"timezone": ZONES, "policy": policies(version)}))
    more = draw(further()) if version > 1 else {}
    return {"name": draw(NAMES), **draw(times(version)), **work, **rest, **more}


@st.composite
def manifests(draw: st.DrawFn, version: int) -> dict[str, Any]:
    listed = draw(st.lists(jobs(version), min_size=1, max_size=3, unique_by=lambda job: job["name"]))
    top: dict[str, Any] = {"version": version, "app": draw(NAMES), "jobs": listed}
    if version > 1:
        defaults = some({}, {"policy": policies(2), "timezone": ZONES, "env": st.just({"Z": "z", "A": "a"})})
        top |= draw(some({}, {"defaults": defaults, "node": st.just({"max_running": 4, "keep_days": 30})}))
    return top
