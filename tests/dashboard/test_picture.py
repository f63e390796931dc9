"""The picture of an app: what each step adds, corrects and removes, on a real store."""

import pytest
from tests.dashboard.world import World

from detent.dashboard import picture as pictures
from detent.dashboard.picture import Picture

LONG_AGO_S = pictures.RECENT.total_seconds() + 30.0


@pytest.fixture
def picture(world: World) -> Picture:
    found = Picture("shop", world.manifest)
    step(found, world, "watermarks")
    return found


def step(picture: Picture, world: World, *names: str) -> None:
    for name in names:
        picture.take(name, picture.fetch(name, world.store))


def test_nothing_is_read_before_the_time_of_the_store_is_known(world: World) -> None:
    new = Picture("shop", world.manifest)
    assert [name for name in pictures.PERIODS_S if new.is_useful(name)] == ["watermarks"]


def test_a_scan_finds_old_fires_and_removes_deleted_ones(world: World, picture: Picture) -> None:
    key = world.put(ago_s=LONG_AGO_S)
    world.finish(world.claim()[0])
    step(picture, world, "recent")
    assert key not in picture.rows
    step(picture, world, "scan")
    assert picture.rows[key].state == "over"
    assert world.store.forget([key]) == 1
    step(picture, world, "scan")
    assert key not in picture.rows


def test_a_scan_reads_page_after_page(
    world: World, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "PAGE", 2)
    keys = {world.put(ago_s=LONG_AGO_S + number) for number in range(5)}
    for pages in range(1, 4):
        step(picture, world, "scan")
        assert len(picture.rows) == min(5, pages * 2)
    assert {*picture.rows} == keys and picture.period_s("scan") > 1.0, "the first round is over"


def test_an_old_fire_that_was_running_is_read_by_its_key(world: World, picture: Picture) -> None:
    key = world.put(ago_s=LONG_AGO_S)
    claim = world.claim()[0]
    step(picture, world, "running")
    assert picture.rows[key].state == "claimed" and not picture.is_useful("open")
    world.finish(claim)
    step(picture, world, "running")
    assert picture.rows[key].state == "claimed" and picture.is_useful("open")
    step(picture, world, "open")
    assert picture.rows[key].state == "over" and not picture.is_useful("open")


def test_an_open_fire_that_is_gone_is_removed(world: World, picture: Picture) -> None:
    key = world.put(ago_s=LONG_AGO_S)
    step(picture, world, "scan")
    world.store.cancel(key)
    world.store.forget([key])
    step(picture, world, "open")
    assert key not in picture.rows


def test_more_fires_than_a_page_leave_a_gap_that_is_known(
    world: World, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "PAGE", 3)
    for number in range(5):
        world.put(ago_s=number)
    step(picture, world, "recent")
    assert len(picture.rows) == 3 and picture.dropped_at == min(
        row.fire.due_at for row in picture.rows.values()
    )


def test_only_the_oldest_message_of_each_queue_is_read(world: World, picture: Picture) -> None:
    first = world.app.task_named("send").push("a@b")
    world.app.task_named("send").push("c@d")
    assert not picture.is_useful("oldest")
    step(picture, world, "sizes", "oldest")
    assert [row.fire.key for row in picture.oldest.values()] == [first.key]
    world.app.drain()
    step(picture, world, "sizes")
    assert (
        not picture.is_useful("oldest")
        and picture.oldest == {}
        and picture.growth_per_min("mail") is not None
    )
