"""Values survive the round trip through rows; URLs lead to their store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import UsageError
from detent.model import Outcome, Policy, Query, Retries
from detent.stores.encoding import outcome_of, outcome_text, policy_of, policy_text
from detent.stores.memory.store import MemoryStore
from detent.stores.registry import open_store
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, Asker, finish, fire

SECONDS = st.floats(0, 1e6, allow_nan=False)
RETRIES = st.builds(
    Retries,
    max_attempts=st.integers(1, 10),
    min_s=SECONDS,
    max_s=SECONDS,
    jitter=SECONDS,
    on_status=st.lists(st.integers(100, 599)).map(tuple),
    on_exit_codes=st.lists(st.integers(0, 255)).map(tuple),
)
POLICIES = st.builds(
    Policy,
    concurrency=st.sampled_from(["Allow", "Forbid", "Replace", "Queue"]),
    timeout_s=SECONDS,
    start_deadline_s=SECONDS,
    claim_s=SECONDS,
    grace_s=SECONDS,
    late_after_s=SECONDS,
    breaker_cooldown_s=SECONDS,
    unique_s=SECONDS,
    result_s=SECONDS,
    retries=RETRIES | st.just(Retries()),
    hooks=st.lists(st.text(max_size=9)).map(tuple),
)


@given(POLICIES)
def test_a_policy_is_read_as_it_was_written(policy: Policy) -> None:
    assert policy_of(policy_text(policy)) == policy


def test_a_default_policy_is_an_empty_text() -> None:
    assert policy_text(Policy()) == ""


def test_a_field_of_a_newer_version_is_ignored() -> None:
    text = '{"concurrency":"Allow","priority":3,"retries":{"max_attempts":2,"pace":"slow"}}'
    assert policy_of(text) == Policy(concurrency="Allow", retries=Retries(max_attempts=2))


@given(st.sampled_from(["failed", "timed-out"]), st.text())
def test_an_outcome_is_read_as_it_was_written(kind: str, reason: str) -> None:
    outcome = Outcome(kind, reason)  # type: ignore[arg-type]
    assert outcome_of(outcome_text(outcome)) == outcome


def test_a_reason_that_is_not_unicode_is_kept(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.put([fire("a.b@1")])
        finish(store, Asker(store).claim_one(), DONE._replace(outcome=Outcome("failed", "no file \udcff")))
        (row,) = store.find(Query())
    assert row.outcome == Outcome("failed", "no file \udcff")


def test_a_url_names_a_relative_or_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///here.db", f"sqlite:///{tmp_path}/there.db"):
        with closing(open_store(url)) as store:
            store.put([fire("a.b@1")])
    assert {path.name for path in tmp_path.glob("*.db")} == {"here.db", "there.db"}
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "named by a URL"),
        ("/var/lib/store.db", "named by a URL"),
        ("sqlite:", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://host/store.db", "names no file"),
        ("sqlite:store.db", "names no file"),
        ("sqlite:///a\0b", "names no file"),
        ("memory:x", "unknown kind"),
        ("oracle://me:secret@host/db", "unknown kind"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_what_is_allowed(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        open_store(url)
    assert "sqlite:///PATH" in str(error.value)
    assert "secret" not in str(error.value)
