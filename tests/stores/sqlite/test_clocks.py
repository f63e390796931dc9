"""The SQLite store after a reboot, in a new epoch, and when the clock is set."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from detent.model import Ask, Policy, Query, Rate, Usage
from detent.rules.rates import MARGIN_S
from detent.stores.base import FENCE_SHIFT
from detent.stores.sqlite.clocks import boot_id
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import AGAIN, TTL_S, Asker, FakeClock, Planner, finish, fire, renew, row


class Host:
    """A machine with a store, which tests can reboot."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.boot = path, FakeClock(), "first boot"
        self.opened: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        store = SqliteStore(self.path, self.clock.wall, self.clock.monotonic, lambda: self.boot)
        self.opened.append(store)
        return store

    def reboot(self, away_s: float = 0.0) -> SqliteStore:
        self.close()
        self.boot += " and another"
        self.clock._monotonic = 3.0
        self.clock._wall += away_s
        return self.open()

    def restore(self) -> None:
        """Replace the file by a copy while it is open."""
        copy = self.path.with_name("copy")
        shutil.copy(self.path, copy)
        copy.replace(self.path)

    def close(self) -> None:
        for store in self.opened:
            store.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    one = Host(tmp_path / "store.db")
    yield one
    one.close()


# Boots.


def test_everything_survives_reopening(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1", policy=Policy(grace_s=5.0, hooks=("on_failure",)), payload='{"a": 1}')])
    claim = Asker(store).claim_one()
    finish(store, claim, AGAIN, status=7, took_s=0.25, tail=b"last words")
    before = store.find(Query(key="a.b@1"))
    store.close()
    assert host.open().find(Query(key="a.b@1")) == before
    assert before[0].attempts[0].tail == b"last words"


def test_a_reboot_expires_all_claims(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1", "Forbid")])
    old = Asker(store).claim_one(ttl_s=3600)
    store = host.reboot()
    store.put([fire("a.b@2", "Forbid")])
    disposition = renew(store, old)
    assert disposition and disposition.kind == "lost"
    again = {claim.fire.key: claim for claim in Asker(store, "n2").claim()}
    assert again["a.b@1"].disposition is not None
    assert again["a.b@2"].disposition is None
    assert again["a.b@1"].fence > old.fence


def test_claims_survive_reopening_in_the_same_boot(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    store.close()
    store = host.open()
    assert renew(store, old) is None
    assert Asker(store, "n2").claim() == []


def test_a_reboot_ends_graces(host: Host) -> None:
    store = host.open()
    policy = Policy(grace_s=1000.0)
    store.put([fire("a.b@1", "Forbid", policy=policy)])
    finish(store, Asker(store).claim_one())
    store.put([fire("a.b@2", "Forbid", policy=policy)])
    assert Asker(store, "n2").claim() == []
    assert Asker(host.reboot(), "n3").claim_one().fire.key == "a.b@2"


def test_a_reboot_forgets_the_numbers_of_asks(host: Host) -> None:
    store = host.open()
    store.claim(Ask("a", "n1", 50))
    store = host.reboot()
    store.put([fire("a.b@1")])
    assert len(store.claim(Ask("a", "n1", 1)).claims) == 1


def test_a_reboot_does_not_change_when_a_note_expires(host: Host) -> None:
    host.open().note("a", "pause/a.b", "until noon", ttl_s=100)
    store = host.reboot(away_s=60)
    (note,) = store.notes("a")
    assert note.expires_at is not None
    assert (note.expires_at - note.written_at).total_seconds() == 100
    host.clock.pass_time(41)
    assert store.notes("a") == []


def test_a_reboot_does_not_change_when_a_retry_is_due(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1")])
    finish(store, Asker(store).claim_one(), AGAIN)
    before = row(store, "a.b@1").run_at
    store = host.reboot(away_s=5)
    store.look("a")
    assert row(store, "a.b@1").run_at == before


@pytest.mark.parametrize(("away_s", "free_in_s"), [(20.0, 40.0), (-3600.0, 60.0), (100.0, 0.0)])
def test_a_rate_counts_charges_before_a_reboot(away_s: float, free_in_s: float, host: Host) -> None:
    """Only the wall clock tells how long the machine was off; if it was set back, it frees nothing."""
    store, rate = host.open(), Rate(2, 60.0 - MARGIN_S)
    assert [store.charge("a", "mail", rate).used for _ in range(3)] == [1, 2, 2]
    store = host.reboot(away_s)
    assert store.charge("a", "mail", rate, 0).free_in_s == pytest.approx(free_in_s)
    host.clock.pass_time(free_in_s)
    assert store.charge("a", "mail", rate) == Usage(1, 0.0)


def test_charges_outside_every_window_are_pruned(host: Host) -> None:
    store = host.open()
    store.charge("a", "mail", Rate(1, 60.0))
    store.charge("a", "sms", Rate(1, 9000.0))
    host.clock.pass_time(4000)
    store.prune("a", 0, 0)
    with closing(sqlite3.connect(host.path)) as db:
        assert db.execute("SELECT name FROM cells").fetchall() == [("charge/sms",)]


def test_this_machine_has_a_boot_id() -> None:
    assert len(boot_id()) > 8
    assert boot_id() == boot_id()


# Eras.


def test_a_restored_file_begins_a_new_epoch_with_higher_fences_and_a_quarantine(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1"), fire("a.b@2")])
    old, epoch = Asker(store).claim_one(limit=1), store.look("a").epoch
    store.close()
    host.restore()
    node = Asker(store, "n2")
    assert store.look("a").epoch != epoch
    assert node.claim() == []
    assert node.ask().next_in_s == TTL_S
    assert renew(store, old) is None, "what the file remembers is renewed"
    host.clock.pass_time(TTL_S)
    fresh = {claim.fire.key: claim.fence for claim in node.claim()}
    assert fresh["a.b@2"] >= old.fence + (1 << FENCE_SHIFT)


def test_the_same_file_is_the_same_epoch(host: Host) -> None:
    store = host.open()
    epoch = store.look("a").epoch
    store.close()
    assert host.open().look("a").epoch == epoch
    assert host.reboot().look("a").epoch == epoch


def test_a_file_that_is_replaced_under_an_open_store_is_noticed(host: Host) -> None:
    store, other = host.open(), host.open()
    store.put([fire("a.b@1")])
    Asker(store).claim_one()
    store.close()
    host.restore()
    other.put([fire("a.b@2")])
    epochs = {one.look("a").epoch for one in (store, other, host.open())}
    assert len(epochs) == 1
    assert {one.fire.key for one in store.find(Query())} == {"a.b@1", "a.b@2"}


def test_a_file_that_is_replaced_does_not_get_the_log_of_the_old_one(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1")])
    store.close()
    backup = host.path.with_name("backup")
    shutil.copy(host.path, backup)
    store.put([fire(f"a.b@{number}") for number in range(2, 300)])
    backup.replace(host.path)
    assert [one.fire.key for one in store.find(Query())] == ["a.b@1"]
    store.close()
    with closing(sqlite3.connect(host.path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_is_deleted_under_an_open_store_is_created_again(host: Host) -> None:
    store, other = host.open(), host.open()
    store.put([fire("a.b@1")])
    other.find(Query())
    epoch = store.look("a").epoch
    host.path.unlink()
    assert store.put([fire("a.b@2")]) == [True]
    assert [one.fire.key for one in other.find(Query())] == ["a.b@2"]
    assert store.look("a").epoch != epoch


def test_a_new_file_grants_at_once_unless_nodes_of_a_deleted_file_may_run(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1")])
    assert len(Asker(store).claim()) == 1
    nodes = Path(f"{host.path}.nodes")
    nodes.mkdir()
    (nodes / "n1.lock").touch()
    host.path.unlink()
    store.put([fire("a.b@1")])
    node = Asker(store, "n2")
    assert node.claim() == []
    host.clock.pass_time(TTL_S)
    assert len(node.claim()) == 1


# Clocks.


@pytest.mark.parametrize("step_s", [3 * 3600.0, -3 * 3600.0])
def test_a_step_of_the_wall_clock_moves_retries_but_no_expiry(host: Host, step_s: float) -> None:
    store = host.open()
    store.put([fire("a.b@1"), fire("a.b@2")])
    first, second = Asker(store).claim()
    finish(store, first, AGAIN)
    host.clock.step_wall(step_s)
    node = Asker(store, "n2")
    assert node.claim() == [], "the retry is not due, and the claim has not expired"
    host.clock.pass_time(TTL_S / 2)
    assert [claim.fire.key for claim in node.claim()] == ["a.b@1"]
    host.clock.pass_time(TTL_S / 2)
    assert {claim.fire.key for claim in node.claim()} >= {"a.b@2"}
    assert renew(store, second) is not None


def test_an_instant_of_a_schedule_does_not_move_with_the_wall_clock(host: Host) -> None:
    store = host.open()
    planner = Planner(store)
    planner.advance(ahead_s=30)
    host.clock.step_wall(25)
    assert [claim.fire.key for claim in Asker(store).claim()] == [planner.key(1), planner.key(2)]


def test_a_step_of_the_clock_is_applied_once(host: Host) -> None:
    store, other = host.open(), host.open()
    store.put([fire("a.b@1")])
    finish(store, Asker(store).claim_one(), AGAIN)
    before = row(store, "a.b@1").run_at
    host.clock.step_wall(100)
    store.look("a")
    other.look("a")
    after = row(other, "a.b@1").run_at
    assert before and after
    assert (after - before).total_seconds() == 100


def test_reading_notes_notices_a_reboot(host: Host) -> None:
    store = host.open()
    store.note("a", "heartbeat", "alive", ttl_s=10)
    assert [note.name for note in store.notes("a")] == ["heartbeat"]
    assert host.reboot(away_s=60).notes("a") == []


def test_reading_does_not_change_the_file(host: Host) -> None:
    store = host.open()
    store.put([fire("a.b@1")])
    log = Path(f"{host.path}-wal")
    before = log.stat().st_size
    for _ in range(5):
        store.find(Query())
        store.notes("a")
        store.look("a")
    assert log.stat().st_size == before
