"""Jobs in code become the jobs of a manifest; every problem is reported with file and line."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from tests.app.app_world import World

import detent
from detent.app.declarations import JobOptions, PolicyOptions, RetryOptions
from detent.errors import UsageError
from detent.loading.config import load_manifest
from detent.manifest.check import canonical_text
from detent.manifest.fields import JOB
from detent.model import Call

NOT_IN_CODE = {  # the work of a job in code is its function
    "schedule", "schedules", "call", "command", "request", "auth", "children", "shell", "policy",
}  # fmt: skip


def send() -> None: ...


async def settle(customer: int, fire: detent.Fire) -> None: ...


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame and frame.f_back
    return frame.f_back.f_lineno


def test_the_public_names_are_few() -> None:
    assert detent.__all__ == [
        "BackendError", "ClaimLost", "Detent", "DetentError", "Fire", "LockLost", "LockTimeout",
        "PushUnknown", "RateLimited", "ResultTimeout", "ResultUnknown", "StoreUnavailable",
        "TaskFailed", "UsageError", "__version__",
    ]  # fmt: skip
    assert all(getattr(detent, name) for name in detent.__all__)


def test_every_field_of_a_job_and_of_its_policy_is_a_keyword() -> None:
    fields = {field.name: field for field in JOB[2].fields}
    policy = {field.name: field for field in fields["policy"].shape.fields}  # type: ignore[attr-defined]
    retries = {field.name for field in policy["retries"].shape.fields}  # type: ignore[attr-defined]
    keywords = set(get_type_hints(JobOptions))
    assert keywords == (set(fields) - NOT_IN_CODE) | (set(policy) - {"retries"}) | retries
    assert {*PolicyOptions.__annotations__} == {*policy} - {"retries"}
    assert {*RetryOptions.__annotations__} == retries


def test_an_app_and_a_file_with_the_same_jobs_give_the_same_manifest(tmp_path: Path) -> None:
    app = detent.Detent(
        "billing", store="sqlite:///b.db", node={"max_running": 4}, defaults={"timezone": "Europe/Berlin"}
    )
    app.job("*/5 * * * *", concurrency="Replace", timeout_seconds=60, max_attempts=3, jitter=0.5)(send)
    starts_at = datetime(2026, 3, 1, tzinfo=UTC)
    app.job("0 2 * * *", "0 14 * * *", name="late", args=[7], starts_at=starts_at, tags=("a", "b"))(settle)
    retries = {"max_attempts": 3, "jitter": 0.5}
    policy = {"concurrency": "Replace", "timeout_seconds": 60, "retries": retries}
    first = {"name": "send", "schedule": "*/5 * * * *", "call": f"{__name__}:send", "policy": policy}
    second = {"name": "late", "schedules": ["0 2 * * *", "0 14 * * *"], "call": f"{__name__}:settle"}
    second |= {"args": [7], "starts_at": "2026-03-01T00:00:00+00:00", "tags": ["a", "b"]}
    document = {"version": 2, "app": "billing", "store": "sqlite:///b.db", "node": {"max_running": 4}}
    document |= {"defaults": {"timezone": "Europe/Berlin"}, "jobs": [first, second]}
    (tmp_path / "detent.yaml").write_text(yaml.safe_dump(document))
    from_file = load_manifest(tmp_path / "detent.yaml", {})
    assert canonical_text(app.manifest({})) == canonical_text(from_file)
    assert app.manifest({})._replace(jobs=()) == from_file._replace(jobs=())
    assert [job.revision for job in app.manifest({}).jobs] == [job.revision for job in from_file.jobs]


def test_a_decorated_function_stays_what_it_is() -> None:
    app = detent.Detent("billing")
    assert app.job("@hourly")(send) is send


def wrong(decorate: Callable[[detent.Detent], Any]) -> str:
    app = detent.Detent("billing")
    with pytest.raises(UsageError) as raised:
        decorate(app)
        app.manifest({})
    return str(raised.value)


def test_all_problems_are_reported_with_the_file_and_line_of_each_decorator() -> None:
    app = detent.Detent("billing")
    first = line_here() + 1
    app.job("61 * * * *")(send)
    app.job("@hourly", name="other", timeout_seconds=-1, timezone="Mars")(send)
    with pytest.raises(UsageError) as raised:
        app.manifest({})
    lines = str(raised.value).splitlines()
    file = Path(__file__).relative_to(Path.cwd()) if Path(__file__).is_relative_to(Path.cwd()) else __file__
    assert len(lines) == 3
    assert f"at jobs[0].schedule ({file}:{first})" in lines[0] and "61" in lines[0]
    assert all("at jobs[1]." in line and f"({file}:{first + 1})" in line for line in lines[1:])


def test_problems_in_several_files_name_each_file(world: World) -> None:
    world.write("shop.py", "import detent", 'app = detent.Detent("shop")', "import more")
    world.write("more.py", "from shop import app", '@app.job("61 * * * *")', "def a() -> None: ...")
    world.write(
        "main.py",
        "from shop import app",
        "",
        '@app.job("62 * * * *")',
        "def b() -> None: ...",
        "app.manifest()",
    )
    said = world.run("python", "main.py").stderr
    assert "jobs[0].schedule (more.py:2)" in said and "jobs[1].schedule (main.py:3)" in said


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda app: app.job("@hourly", unknown=1)(send), "unknown"),
        (lambda app: app.job("@hourly")(settle), "missing a required argument: 'customer'"),
        (lambda app: app.job("@hourly", args=[1])(send), "too many positional arguments"),
        (lambda app: app.job("@hourly", args={"who": 1})(send), "'who'"),
        (lambda app: app.job("@hourly", isolation="loop")(send), 'isolation="loop" is for async functions'),
        (lambda app: app.job("@hourly")(lambda: None), "name the job with name="),
        (lambda app: app.job("@hourly", name="x", isolation="process")(lambda: None), "cannot import"),
        (lambda app: app.job()(send), "exactly one of schedule, schedules or at"),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused(
    decorate: Callable[[detent.Detent], Any], message: str
) -> None:
    said = wrong(decorate)
    assert message in said and f"{Path(__file__).name}:" in said


def test_two_jobs_of_one_name_are_refused() -> None:
    assert "names are unique" in wrong(lambda app: [app.job("@hourly")(send), app.job("@daily")(send)])


def test_a_bad_name_of_an_app_is_reported_where_the_app_is_created() -> None:
    app, line = detent.Detent("No Name"), line_here()
    app.job("@hourly")(send)
    with pytest.raises(UsageError, match=rf"at app \(.*test_jobs.py:{line}\)"):
        app.manifest({})


def test_a_function_that_other_processes_cannot_import_runs_in_a_thread() -> None:
    app = detent.Detent("billing-eu")

    @app.job("@hourly")
    def send_all() -> None: ...

    app.job("@daily")(send)
    app.job("@daily", name="method")([].clear)
    app.job("@daily", name="bound")(detent.Detent("other").stop)
    nested, importable, method, bound = (job.work for job in app.manifest({}).jobs)
    assert method == Call("detent.app.local_functions:billing_eu.method", isolation="thread")
    assert bound == Call("detent.app.local_functions:billing_eu.bound", isolation="thread")
    assert nested == Call("detent.app.local_functions:billing_eu.send_all", isolation="thread")
    assert importable == Call(f"{__name__}:send")


def test_types_are_kept(world: World) -> None:
    """Uses mypy, as users do."""
    world.write(
        "shop.py",
        "import detent",
        'app = detent.Detent("shop")',
        '@app.job("@hourly", args=[1])',
        "def f(n: int) -> str:",
        "    return str(n)",
        '@app.job("@hourly", args=[1])',
        "async def g(n: int) -> str:",
        "    return str(n)",
        "reveal_type(f)",
        "reveal_type(g)",
        'f("x")',
        'app.job("@hourly", max_attempts="3")',
        'app.job("@hourly", unknown=3)',
    )
    said = world.run(
        "mypy", "--strict", "--no-incremental", "--cache-dir", str(world.folder / "c"), "shop.py"
    )
    lines = said.stdout.splitlines()
    assert 'Revealed type is "def (n: int) -> str"' in lines[0].replace("builtins.", "")
    assert "Coroutine[Any, Any, str]" in lines[1].replace("builtins.", "").replace("typing.", "")
    assert [line.split(":")[1] for line in lines if ": error:" in line] == ["11", "12", "13"]


def test_importing_detent_loads_nothing_of_an_app() -> None:
    code = "import sys, detent; sys.exit('detent.app' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_empty_store_is_refused_where_the_app_is_made() -> None:
    with pytest.raises(UsageError, match=r"test_jobs\.py:\d+: store is empty: name a store"):
        detent.Detent("shop", store="")
