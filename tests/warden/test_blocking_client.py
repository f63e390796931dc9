"""What a trigger reports of work that its warden ran or could not start, with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trigger.trigger_world import Host, minute

ONCE = {"retries": {"max_attempts": 1}}
BACKEND_DOWN = """
from detent import BackendError

def work():
    raise BackendError("no answer from the mail server")
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "host")
    yield host
    host.clear_up()


def test_a_call_that_raises_backend_error_has_the_cause_backend(host: Host, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(BACKEND_DOWN)
    host.write("job", call="app:work", work_dir=str(tmp_path), policy=ONCE)
    host.trigger("job", "--due", minute(3))
    [row] = host.find(key=f"t.job@{minute(3)}")
    assert row.outcome is not None and (row.outcome.kind, row.outcome.cause) == ("failed", "backend")


def test_a_command_that_cannot_be_started_has_failed_and_was_not_too_late(host: Host) -> None:
    host.write("job", command=["/no/such/command"], policy=ONCE)
    said = host.trigger("job", "--due", minute(3))
    [row] = host.find(key=f"t.job@{minute(3)}")
    assert row.outcome is not None and row.outcome.kind == "failed", said
    assert row.outcome.reason == 'command not found: "/no/such/command"'
