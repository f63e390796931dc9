"""Text for people, file names, and the limit on nested JSON in each place that reads it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import UsageError
from detent.messages.envelope import MessageBody, MessageRules, open_envelope, seal
from detent.model import Fire
from detent.text import NESTING_MAX, is_too_deep, is_unicode, percent_encoded


@given(st.text())
def test_a_file_name_is_encoded_as_the_standard_library_does(text: str) -> None:
    assert percent_encoded(text) == quote(text, safe="")


@given(st.text(st.characters(exclude_categories=())))
def test_a_lone_surrogate_is_not_unicode(text: str) -> None:
    assert is_unicode(text) == (re.search("[\ud800-\udfff]", text) is None)


# Nesting.

DEEP = 1000  # with a higher limit of recursion, every Python decodes this

VALUES = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\a', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"', max_size=3), inner, max_size=3)
    ),
)


def nested(depth: int) -> Any:
    value: Any = []
    for number in range(depth - 1):
        value = [value] if number % 2 else {"[": value}
    return value


@given(VALUES)
def test_brackets_inside_strings_do_not_count(value: Any) -> None:
    """Texts full of brackets, in a value that is as deep as allowed."""
    inner = json.dumps(["[{" * NESTING_MAX, value])
    depth = _depth([value, 1])
    for around in (NESTING_MAX - depth, NESTING_MAX - depth + 1):
        assert is_too_deep("[" * around + inner + "]" * around) == (around + depth > NESTING_MAX)


def _depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def test_the_maximum_depth_is_allowed_also_side_by_side() -> None:
    assert not is_too_deep(json.dumps(3 * [nested(NESTING_MAX - 1)]))
    assert is_too_deep(json.dumps(3 * [nested(NESTING_MAX)]))
    assert is_too_deep("[" * 100_000)
    assert not is_too_deep('["' + "[" * 100_000)


def test_a_message_that_is_nested_too_deep_to_be_read_cannot_be_sealed() -> None:
    fire = Fire(key="a.t#1", job="a.t", due_at=datetime(2026, 3, 1, tzinfo=UTC), queue="q")
    sealed = seal(fire, MessageBody("t", json.dumps(nested(NESTING_MAX - 1)), 1.0), [])
    assert isinstance(
        open_envelope(fire._replace(payload=sealed), MessageRules([], {"t": None})), MessageBody
    )
    with pytest.raises(UsageError, match=r'message "a\.t#1": .* nested too deep: at most 100 levels'):
        seal(fire, MessageBody("t", json.dumps(nested(NESTING_MAX)), 1.0), [])


# What reads JSON of others, and what it must say.  Each is a program: TEXT is too deep, `say` prints.
READERS = {
    "an envelope": """
from datetime import UTC, datetime
from detent.messages.envelope import MessageRules, open_envelope
from detent.model import Fire
fire = Fire(key="a.t#1", job="a.t", due_at=datetime.now(UTC), queue="q")
start = '{"v":1,"id":"a.t#1","app":"a","task":"t","queue":"q","pushed_at":1.000,"args":'
say(open_envelope(fire._replace(payload=start + TEXT + "}"), MessageRules([], {"t": None})))
""",
    "a manifest": """
from detent.loading.documents import parse_json
say(parse_json('{"version": 1, "x": ' + TEXT + '}'))
""",
    "the spec of a trigger": """
from pathlib import Path
from detent.cli.run.trigger import _read_spec
Path("spec.json").write_text('{"version": 1, "x": ' + TEXT + '}')
say(_read_spec("spec.json", {}))
""",
    "a spec on a host": """
from detent.hosts.spec_folder import _revision
job = '{"name": "b", "schedule": "@daily", "call": "m:f", "args": %s}' % TEXT
say(_revision('{"version": 2, "app": "a", "jobs": [%s]}' % job, "a.b") or "nested too deep")
""",
    "a message that is shown": """
from detent.model import Fire
from detent.app.queue.queues import _task_and_args
fire = Fire(key="a.t#1", job="a.t", due_at=None, payload='{"task": "x", "args": %s}' % TEXT)
say("nested too deep" if _task_and_args(fire) == ("t", None) else _task_and_args(fire))
""",
    "a result": """
import json
from detent.runners.call.function import returned
say(returned(json.loads(TEXT)))
""",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=[*READERS])
def test_every_reader_refuses_json_that_is_nested_too_deep(reader: str, tmp_path: Path) -> None:
    program = f"""
import sys, threading
TEXT = "[" * {DEEP} + "]" * {DEEP}
def say(value): print(value)
def main():
    try:
        exec({reader!r}, globals())
    except ValueError as error:
        print(error)
sys.setrecursionlimit(10**6)
threading.stack_size(512 * 2**20)
thread = threading.Thread(target=main)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert "nested too deep" in done.stdout, done.stdout[-300:] + done.stderr[-2000:]
