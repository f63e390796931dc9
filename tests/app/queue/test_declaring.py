"""Declaring tasks: the options, the task that results, and the errors."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from typing import Any

import pytest

import detent
from detent import BackendError, Detent, Fire, UsageError
from detent.model import Call
from detent.runners.call.function import failure_of, find, fire_parameter
from detent.runners.call.spec import outcome_of

app = Detent("shop", store="memory:")


@app.task
def bare(to: str) -> str:
    """Says hello."""
    return f"hello {to}"


@app.task(queue="mail", name="other-name")
async def waiting(to: str, fire: Fire) -> str:
    return f"{to} {fire.attempt}"


@app.job("@yearly", args=["yearly"])
@app.task(keep_result=True, isolation="thread")
def both(to: str) -> str:
    return to


def test_a_task_has_an_import_path_and_calls_its_function() -> None:
    task = app.tasks()["bare"]
    assert task.call == Call(f"{__name__}:bare")
    assert find(task.call.function) is bare
    assert bare("you") == "hello you" and bare.__doc__ == "Says hello."
    assert [*inspect.signature(bare).parameters] == ["to"]
    assert pickle.loads(pickle.dumps(bare)) is bare


def test_a_task_may_be_async_and_ask_for_its_fire() -> None:
    found = fire_parameter(find(app.tasks()["other-name"].call.function))
    assert found and found[0].name == "fire"
    made = waiting("a", None)  # type: ignore[arg-type]
    assert asyncio.iscoroutine(made)
    made.close()
    assert app.tasks()["other-name"].queue == "mail"


def test_a_function_may_be_a_job_and_a_task() -> None:
    (job,) = app.manifest().jobs
    assert job.name == "shop.both" and find(job.work.function) is both  # type: ignore[union-attr]
    assert [one.result for one in app.fire_due("2027-01-01T00:00:00Z")] == ["yearly"]


def test_the_default_options_are_the_safest_ones() -> None:
    task = app.tasks()["bare"]
    assert (task.policy.retries.max_attempts, task.policy.on_lost, task.policy.concurrency) == (
        1,
        "skip",
        "Allow",
    )
    assert (task.queue, task.lane, task.expires_s, task.policy.drop_result) == ("default", "", 0.0, True)


@pytest.mark.parametrize(
    ("said", "lane", "concurrency"),
    [
        ({"single": True}, "send", "Queue"),
        ({"single": "smtp"}, "smtp", "Queue"),
        ({"single": "smtp", "on_contention": "fail"}, "smtp", "Forbid"),
        ({"single": False}, "", "Allow"),
    ],
)
def test_single_tasks_have_a_lane(said: dict[str, Any], lane: str, concurrency: str) -> None:
    task = Detent("shop", store="memory:").task(name="send", **said)(lambda: None).task
    assert (task.lane, task.policy.concurrency) == (lane, concurrency)


@pytest.mark.parametrize(
    ("backoff", "waits"), [(5, (5, 5)), (0, (0, 0)), ((1, 60), (1, 60)), ([0.5, 2], (0.5, 2))]
)
def test_waits_between_attempts_are_fixed_or_grow(backoff: Any, waits: tuple[float, float]) -> None:
    retries = (
        Detent("shop").task(name="send", max_retries=2, backoff=backoff)(lambda: None).task.policy.retries
    )
    assert (retries.min_s, retries.max_s, retries.max_attempts) == (*waits, 3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_retries": -1}, "max_retries: -1 is not a whole number from 0 to 1000"),
    ({"max_retries": True}, "max_retries: true is not a whole number"),
    ({"backoff": "fast"}, 'backoff: "fast" is not a number of seconds, nor a pair'),
    ({"backoff": (5, 1)}, "backoff: the first wait is longer than the last: write (1, 5)"),
    ({"backoff": (1, 2, 3)}, "backoff: (1, 2, 3) is not a number of seconds, nor a pair (least, most)"),
    ({"backoff": (1, "x")}, 'backoff: "x" is not a number'),
    ({"result_ttl": 60}, "result_ttl needs a kept result: add keep_result=True"),
    ({"jitter": 2}, "jitter: 2 is not a number from 0 to 1"),
    ({"queue": "Mail!"}, 'queue: "Mail!" is not a name'),
    ({"queue": "mail^high"}, 'queue: "mail^high" is not a name'),
    ({"also_from": "bulk"}, 'also_from: "bulk" is not a list of queues'),
    ({"name": "Send"}, 'name: "Send" is not a name'),
    ({"on_contention": "fail"}, "on_contention has no effect without single="),
    ({"on_contention": "wait", "single": True}, 'on_contention: "wait" is not requeue or fail'),
    ({"breaker_threshold": 0}, "breaker_threshold: 0 is not a whole number from 1"),
    ({"isolation": "fork"}, 'isolation: "fork" is not process, thread or loop'),
    ({"isolation": "process"}, "another process cannot import this function"),
    ({"isolation": "loop"}, 'isolation="loop" is for async functions'),
    ({"keep_result": 1}, "keep_result: 1 is not true or false"),
    ({"retries": 3}, 'retries: unknown option "retries"; did you mean "max_retries"?'),
    ({"claim_seconds": 0.1, "timeout_seconds": -1}, "claim_seconds: 0.1 is not a number from 2"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_bad_task_is_reported_with_its_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Detent("shop").task(**{"name": "send", **options})(lambda: None)
    assert message in str(caught.value)
    assert str(caught.value).startswith("tests/app/queue/test_declaring.py:")


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        Detent("shop").task(name="send", jitter=2, max_retries=-1)(lambda: None)
    assert "jitter" in str(caught.value) and "max_retries" in str(caught.value)


def test_two_tasks_of_one_name_are_refused() -> None:
    own = Detent("shop")
    own.task(name="send")(lambda: None)
    with pytest.raises(
        UsageError, match=r'declaring\.py:\d+: the task "send" exists already, at .*declaring\.py:\d+'
    ):
        own.task(name="send")(lambda: None)


def test_a_function_without_a_name_needs_one() -> None:
    with pytest.raises(UsageError, match="name the task with name="):
        Detent("shop").task()(lambda: None)


@pytest.mark.parametrize("what", [5, "send", None])
def test_only_functions_are_tasks(what: Any) -> None:
    with pytest.raises(UsageError, match=r"@app\.task is for functions"):
        Detent("shop").task()(what)


def _yields() -> Any:
    yield 1


async def _yields_later() -> Any:
    yield 1


class Mailer:
    def send(self, to: str) -> None: ...

    @staticmethod
    def post(to: str) -> None: ...


@pytest.mark.parametrize("function", [_yields, _yields_later, functools.partial(_yields)])
def test_a_generator_function_is_neither_a_task_nor_a_job(function: Any) -> None:
    with pytest.raises(UsageError, match=r"declaring\.py:\d+: count: the function is a generator function"):
        Detent("shop").task(name="count")(function)
    with pytest.raises(UsageError, match=r"declaring\.py:\d+: count: the function is a generator function"):
        Detent("shop").job("@daily", name="count")(function)


def test_a_method_is_neither_a_task_nor_a_job() -> None:
    with pytest.raises(UsageError, match=r"declaring\.py:\d+: send: the function is a method of Mailer"):
        Detent("shop").task(Mailer.send)
    with pytest.raises(UsageError, match=r"declaring\.py:\d+: send: the function is a method of Mailer"):
        Detent("shop").job("@daily", args=["you"])(Mailer.send)
    assert Detent("shop").task(Mailer.post).task.call.function.endswith(":Mailer.post")


# Backend errors.


class SmtpDown(BackendError):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendError("no answer"), "BackendError: no answer"),
        (BackendError(), "BackendError"),
        (SmtpDown("port 25"), "SmtpDown: port 25"),
        (ValueError("backend: x"), "ValueError: backend: x"),
        (ConnectionError("refused"), "ConnectionError: refused"),
    ],
)
def test_a_backend_error_is_distinguished_from_other_errors(error: Exception, reason: str) -> None:
    outcome = outcome_of(*failure_of(error))
    assert (outcome.kind, outcome.reason) == ("failed", reason)
    assert (outcome.cause == "backend") == isinstance(error, BackendError)


# Types and names.


def test_the_public_names_of_tasks_exist() -> None:
    for name in ("BackendError", "ClaimLost", "RateLimited", "ResultTimeout", "TaskFailed"):
        assert issubclass(getattr(detent, name), detent.DetentError)
        assert name in detent.__all__


def test_declaring_a_task_opens_no_store_and_loads_no_sender() -> None:
    """The children of a worker import the app for every pool."""
    own = Detent("shop", store="redis://nowhere.invalid")
    own.task(name="send")(lambda: None)
    assert "post" not in vars(own) and own.tasks().keys() == {"send"}
