"""Checks of a store: what a search finds, how it continues, and how many rows it examines."""

from __future__ import annotations

from detent.model import Query
from detent.stores.base import LOOK_MAX, Store, find_all
from detent.testing.stores.fixtures import Asker, World, finish, fire, found, later

MANY = LOOK_MAX + 100
BATCH = 5_000


def find_is_narrowed_by_several_keys_and_by_several_jobs(store: Store, world: World) -> None:
    store.put([fire(key) for key in ("a.b@1", "a.c@1", "a.d@1", "z.b@1")])
    finish(store, Asker(store).claim(limit=9)[0])
    assert found(store, keys=("z.b@1", "a.c@1", "a.x@1")) == ["z.b@1", "a.c@1"]
    assert found(store, keys=("a.b@1", "a.c@1"), state="over") == ["a.b@1"]
    assert found(store, keys=("z.b@1",), app="a") == []
    assert found(store, jobs=("a.d", "z.b", "a.x")) == ["z.b@1", "a.d@1"]
    assert found(store, jobs=("a.b", "a.c"), state="claimed") == ["a.c@1"]
    assert found(store, jobs=("a.b", "a.c"), job="a.b") == ["a.b@1"]


def find_continues_after_a_position_among_equal_instants(store: Store, world: World) -> None:
    store.put([fire(f"a.{'bc'[n % 2]}@{n}", due_at=later(n // 4 / 7)) for n in range(12)])
    store.put([fire("z.b@0", due_at=later(1 / 7))])
    finish(store, Asker(store).claim(limit=99)[3])
    for query in (
        Query(),
        Query(app="a"),
        Query(job="a.b"),
        Query(jobs=("a.c", "z.b")),
        Query(state="claimed"),
    ):
        whole = store.find(query._replace(limit=99))
        assert whole.before is None
        for limit in (1, 2, 5):
            pages, before = [], None
            while page := store.find(query._replace(limit=limit, before=before)):
                pages.append(page)
                before = page.before or (page[-1].fire.due_at, page[-1].fire.key)
            assert [row for page in pages for row in page] == whole
            assert {len(page) for page in pages[:-1]} <= {limit}
        assert find_all(store, query._replace(limit=7)) == whole[:7]


def a_search_examines_a_bounded_number_of_fires_and_says_where_to_continue(
    store: Store, world: World
) -> None:
    store.put([fire("a.first@1")])
    Asker(store).claim_one()
    for start in range(0, MANY, BATCH):
        numbers = range(start, min(start + BATCH, MANY))
        store.put([fire(f"a.many@{n:06}", origin="push", due_at=later(1 + n)) for n in numbers])
    nothing = store.find(Query(app="a", kinds=("succeeded",)))
    assert nothing == [] and nothing.before is not None
    assert find_all(store, Query(app="a", kinds=("succeeded",))) == []
    by_job = store.find(Query(job="a.many", kinds=("succeeded",)))
    assert by_job == [] and by_job.before is not None
    rest = store.find(Query(app="a", origins=("manual",), before=nothing.before))
    assert [one.fire.key for one in rest] == ["a.first@1"]
    running = store.find(Query(app="a", state="claimed"))
    assert [one.fire.key for one in running] == ["a.first@1"] and running.before is None
    assert found(store, app="a", state="pending", limit=2) == [f"a.many@{MANY - n:06}" for n in (1, 2)]


def apps_are_listed_by_their_jobs_fires_and_notes(store: Store, world: World) -> None:
    assert store.apps() == []
    store.set_jobs("d-1", 0, {"d-1.b": "r1"})
    store.put([fire("c.b@1"), fire("c.b@2")])
    store.note("b", "node/1", "text", ttl_s=60.0)
    assert store.apps() == ["b", "c", "d-1"]
    for claim in Asker(store, app="c").claim():
        finish(store, claim)
    assert store.apps() == ["b", "c", "d-1"]
