"""Retries, hooks and requests, from the schedule to the receiver."""

import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path

from tests.equipment.fleet import NEVER, Fleet, wait_for
from tests.equipment.receiver import Received, Receiver

from detent.clock import now
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, verify
from detent.model import Outcome
from detent.warden.program.host_locks import LANE_FD

SECRET = "a-secret-that-signs"
FAILS_TWICE = "echo attempt $DETENT_ATTEMPT; test $DETENT_ATTEMPT -ge 3"


def test_a_command_gets_its_words_as_they_are_and_nothing_else_of_the_node(fleet: Fleet) -> None:
    words = [";|&$()", "two\nlines", "-leading", "$HOME `id` * ~", "", "ümlaut"]
    tell = (
        "import json, os, sys\n"
        "fds = [int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)]\n"
        "print(json.dumps([sys.argv[1:], sorted(fds), os.getsid(0) == os.getpid()]))"
    )
    fleet.write({"name": "job", "schedule": NEVER, "command": ["python3", "-I", "-S", "-c", tell, *words]})
    fleet.start()

    row = fleet.row(fleet.wait_over(fleet.fire("job")).fire.key)
    assert json.loads(row.attempts[0].tail) == [words, [0, 1, 2, LANE_FD], True]


def test_a_failed_attempt_is_repeated_with_backoff_under_the_same_run_id(fleet: Fleet) -> None:
    retries = {"max_attempts": 3, "min_seconds": 1, "max_seconds": 60}
    fleet.write(
        {"name": "job", "schedule": NEVER, "command": FAILS_TWICE, "policy": {"retries": retries}},
    )
    node = fleet.start()

    row = fleet.wait_over(fleet.fire("job"))
    assert row.outcome == Outcome("succeeded")
    first, second, third = row.attempts
    assert [one.outcome.kind for one in row.attempts] == ["failed", "failed", "succeeded"]
    assert second.started_at - first.ended_at >= timedelta(seconds=1)
    assert third.started_at - second.ended_at >= timedelta(seconds=2)
    assert first.fence < second.fence < third.fence
    assert fleet.row(row.fire.key).attempts[2].tail == b"attempt 3\n"
    node.wait("success", fire=row.fire.key)
    assert [said["again_in_s"] for said in node.events("attempt-failed")] == [1.0, 2.0]


def test_a_failure_calls_its_hooks_once_with_what_happened(fleet: Fleet, receiver: Receiver) -> None:
    hook_env = fleet.directory / "hook_env"
    retries = {"max_attempts": 2, "min_seconds": 0, "max_seconds": 1}
    hook = f"env -0 > {hook_env}.$DETENT_NODE.$$"
    fleet.write(
        {
            "name": "job",
            "schedule": NEVER,
            "command": "echo 'no space left'; exit 3",
            "policy": {"retries": retries},
            "on_failure": [hook, f"{receiver.url}/failed?job"],
            "on_success": f"{receiver.url}/not-called",
        }
    )
    fleet.start(), fleet.start()

    row = fleet.wait_over(fleet.fire("job"))
    assert row.outcome == Outcome("failed", "exit 3")
    for hook_row in wait_for(lambda: fleet.find(origins=("hook",)), what="the hooks"):
        assert fleet.wait_over(hook_row.fire.key).outcome == Outcome("succeeded")

    (file,) = fleet.directory.glob("hook_env.*")
    _assert_hook_environment(file, row.fire.key)
    (called,) = receiver.received
    assert called.path == "/failed?job" and called.headers["Content-Type"] == "application/json"
    fire = json.loads(called.body)
    assert (fire["fire"], fire["outcome"], fire["exit_code"]) == (row.fire.key, "failed", 3)
    assert fire["attempts"] == 2


def test_a_webhook_may_have_a_body_of_its_own(fleet: Fleet, receiver: Receiver) -> None:
    chat = {
        "url": f"{receiver.url}/chat",
        "headers": {"X-Team": "night"},
        "body": '{"text": "{{fire}} {{outcome}}: {{reason}}\\n{{output_tail}}", "code": {{exit_code}}}',
    }
    command = """printf 'it said "no\\n'; exit 3"""
    fleet.write({"name": "job", "schedule": NEVER, "command": command, "on_failure": chat})
    fleet.start()
    row = fleet.wait_over(fleet.fire("job"))
    [hook] = wait_for(lambda: fleet.find(origins=("hook",)), what="the hook")
    assert fleet.wait_over(hook.fire.key).outcome == Outcome("succeeded")
    [called] = receiver.received
    assert (called.headers["Content-Type"], called.headers["X-Team"]) == ("application/json", "night")
    expected = {"text": f'{row.fire.key} failed: exit 3\nit said "no\n', "code": 3}
    assert json.loads(called.body) == expected


def test_a_job_can_use_a_shell_with_pipefail(fleet: Fleet) -> None:
    piped = {"schedule": NEVER, "command": "false | cat"}
    bash = {**piped, "name": "bash", "shell": ["/bin/bash", "-o", "pipefail", "-c"]}
    fleet.write({**piped, "name": "sh"}, bash)
    fleet.start()
    assert fleet.wait_over(fleet.fire("sh")).outcome == Outcome("succeeded")
    assert fleet.wait_over(fleet.fire("bash")).outcome == Outcome("failed", "exit 1")


def _assert_hook_environment(file: Path, key: str) -> None:
    env = dict(entry.split("=", 1) for entry in file.read_text().split("\0") if entry)
    expected = {
        "DETENT_FIRE": key,
        "DETENT_OUTCOME": "failed",
        "DETENT_REASON": "exit 3",
        "DETENT_CAUSE": "work",
        "DETENT_EXIT_CODE": "3",
        "DETENT_OUTPUT_TAIL": "no space left\n",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert env["DETENT_DURATION_MS"].isdecimal() and env["DETENT_JOB"] == "job"


def test_a_request_is_signed_again_for_each_attempt(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answer(503)
    request = {
        "url": f"{receiver.url}/run?a=b%20c",
        "headers": {"X-Team": "night", "X-Cron-Attempt": "9"},
        "body": '{"n": 1}',
    }
    retries = {"max_attempts": 3, "min_seconds": 2, "max_seconds": 2}
    fleet.write(
        {
            "name": "call",
            "schedule": NEVER,
            "request": request,
            "auth": {"secret_refs": ["env:SIGNER"]},
            "policy": {"retries": retries},
        }
    )
    fleet.start(SIGNER=SECRET)

    row = fleet.wait_over(fleet.fire("call"))
    assert row.outcome == Outcome("succeeded") and row.attempts[-1].status == 200
    first, second = receiver.received
    assert first.headers["X-Cron-Signature"] != second.headers["X-Cron-Signature"]
    for number, one in enumerate(receiver.received, start=1):
        headers = one.headers
        message = SignedRequest(one.method, one.path, one.body)
        assert verify(headers["X-Cron-Signature"], message, [Secret("other"), Secret(SECRET)], now()) == 1
        assert headers["X-Cron-Signature"].partition(",")[2] == _digests(one)
        assert (one.path, one.body, headers["X-Team"]) == ("/run?a=b%20c", b'{"n": 1}', "night")
        assert headers["X-Cron-Run-Id"] == row.fire.run_id and headers["Idempotency-Key"] == row.fire.key
        assert headers["X-Cron-Attempt"] == str(number) and headers["X-Cron-Schedule-Name"] == "call"
        assert int(headers["X-Cron-Fire-Time"]) == row.fire.due_at.timestamp()
    assert int(first.headers["X-Cron-Fence"]) < int(second.headers["X-Cron-Fence"])


def _digests(received: Received) -> str:
    """Both signatures as the contract defines them, without our own code."""
    headers = received.headers
    unix = headers["X-Cron-Signature"].partition(",")[0].removeprefix("t=")
    head = f"{unix}.{received.method}.{received.path}.".encode()
    names = ("Idempotency-Key", "X-Cron-Run-Id", "X-Cron-Attempt", "X-Cron-Fence")
    words = [*(headers[name] for name in names), hashlib.sha256(received.body).hexdigest()]
    signed = {"v1": head + received.body, "v2": head + ".".join(words).encode()}
    return ",".join(
        f"{name}={hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()}"
        for name, text in signed.items()
    )


def test_a_request_that_is_refused_is_not_repeated(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answer(404)
    fleet.write({"name": "call", "schedule": NEVER, "request": {"url": receiver.url}})
    node = fleet.start()

    row = fleet.wait_over(fleet.fire("call"))
    assert row.outcome is not None and row.outcome.kind == "rejected"
    assert len(receiver.received) == len(row.attempts) == 1
    assert "thank you" in node.wait("app-rejected")["body_excerpt"]
