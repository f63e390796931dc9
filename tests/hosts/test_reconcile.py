"""What a host should have against what it has: a table of states, and random hosts brought into agreement."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hosts.schedule_texts import PATIENT

from detent.hosts.reconcile import Change, Found, Resource, pending, reconcile, resource_name, seal

APPS = st.sampled_from(["pay", "pay-out", "p"])
JOBS = st.sampled_from(["out", "out-1", "a"])
TEXTS = st.sampled_from(["one", "two", "three"])
REVISIONS = st.sampled_from(["r1", "r2"])


def wanted(content: str = "one", revision: str = "r1", job: str = "shop.a") -> Resource:
    return Resource("n", job, revision, content)


def there(content: str = "one", revision: str = "r1", intact: bool = True, job: str = "shop.a") -> Found:
    return Found("n", content, job, revision, intact)


def only(desired: list[Resource], found: list[Found]) -> str:
    (change,) = reconcile("shop", desired, found)
    return change.state


def test_an_absent_resource_is_missing() -> None:
    assert only([wanted()], []) == "missing"


def test_an_equal_resource_is_unchanged() -> None:
    assert only([wanted()], [there()]) == "unchanged"


def test_a_resource_of_an_older_manifest_is_outdated() -> None:
    assert only([wanted("two", "r2")], [there()]) == "outdated"


def test_a_manual_change_is_edited_even_if_the_manifest_changed() -> None:
    assert only([wanted()], [there("two", intact=False)]) == "edited"
    assert only([wanted("two", "r2")], [there("three", intact=False)]) == "edited"


def test_an_unwanted_resource_is_surplus_even_if_it_was_edited() -> None:
    assert only([], [there()]) == "surplus"
    assert only([], [there(intact=False)]) == "surplus"


def test_an_unmarked_resource_with_our_name_is_foreign() -> None:
    assert only([wanted()], [there("other", job="")]) == "foreign"


def test_an_unmarked_resource_with_another_name_is_ignored() -> None:
    assert reconcile("shop", [], [there(job="")]) == []


def test_a_manual_copy_of_a_line_is_removed() -> None:
    changes = reconcile("shop", [wanted()], [there("edited", intact=False), there()])
    assert [(change.state, change.before) for change in changes] == [
        ("unchanged", there()),
        ("surplus", there("edited", intact=False)),
    ]


@st.composite
def resources(draw: st.DrawFn, app: str) -> Resource:
    job = f"{app}.{draw(JOBS)}"
    return Resource(resource_name(job, draw(st.integers(0, 1))), job, draw(REVISIONS), draw(TEXTS))


@st.composite
def found(draw: st.DrawFn) -> Found:
    one = draw(resources(draw(APPS)))
    job = one.job if draw(st.booleans()) else ""
    return Found(one.name, one.content, job, one.revision, draw(st.booleans()), place=draw(TEXTS))


def carried_out(have: list[Found], changes: list[Change]) -> list[Found]:
    """A host that only applies changes, in memory."""
    left = list(have)
    for change in changes:
        if change.action in ("update", "delete"):
            assert change.before is not None
            left.remove(change.before)
        if change.action in ("create", "update"):
            assert change.after is not None
            left.append(Found(change.name, change.after.content, change.after.job, change.after.revision))
    return left


@settings(PATIENT)
@given(st.lists(resources("pay"), unique_by=lambda one: one.name), st.lists(found()))
def test_a_host_agrees_after_all_changes_are_made(desired: list[Resource], have: list[Found]) -> None:
    changes = reconcile("pay", desired, have)
    after = carried_out(have, changes)
    again = pending(reconcile("pay", desired, after))
    assert {change.state for change in again} <= {"foreign"}
    assert {change.name for change in again} == {one.name for one in changes if one.state == "foreign"}


@settings(PATIENT)
@given(st.lists(resources("pay"), unique_by=lambda one: one.name), st.lists(found()))
def test_foreign_resources_and_other_apps_are_never_changed(
    desired: list[Resource], have: list[Found]
) -> None:
    after = carried_out(have, reconcile("pay", desired, have))
    for one in have:
        if not one.job.startswith("pay."):
            assert after.count(one) >= have.count(one)


@settings(PATIENT)
@given(st.lists(resources("pay"), unique_by=lambda one: one.name), st.lists(found()))
def test_each_desired_or_managed_resource_is_reported_once(
    desired: list[Resource], have: list[Found]
) -> None:
    changes = reconcile("pay", desired, have)
    assert [change.after for change in changes if change.after] == desired
    ours = [one for one in have if one.job.startswith("pay.")]
    removed = [change.before for change in changes if change.before and change.before.job]
    assert sorted(ours) == sorted(removed)


def test_a_name_that_is_too_long_is_cut_and_stays_unlike_others() -> None:
    names = {resource_name(f"shop.{'x' * 60}{end}", i, 52) for end in "ab" for i in range(2)}
    assert len(names) == 4 and {len(name) for name in names} == {52}
    assert resource_name("shop.backup", 0, 52) == "detent-shop.backup-0"


def test_a_seal_depends_on_where_each_part_ends() -> None:
    assert seal("ab", "c") != seal("a", "bc")
