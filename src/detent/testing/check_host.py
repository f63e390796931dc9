"""The suite that every host must pass: the rules of `hosts.base`, one check each.

The test of a host is one call of `check_host`.  For one test result per rule, run each of `CHECKS` with
`run_check`.  Each check gets a new `HostWorld`: an empty host, and ways to read all of it and to edit it like
a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.hosts.base import Host
from detent.hosts.reconcile import Change, pending, reconcile
from detent.manifest.check import check_manifest
from detent.manifest.spec import specs_of

ODD = "a'b\"c`d$HOME${X}%s%n#\\;|&\n* * * * * root touch /x\r\n[Timer]\x1b[31m\x7fé"
LONG = "x" + "-long" * 12


class HostWorld(NamedTuple):
    open: Callable[[str], Host]  # for an app; all use the same place
    look: Callable[[], Mapping[str, str]]  # all resources by name, detent's and foreign ones
    edit: Callable[[str], None]  # change one of detent's resources by hand: another time, another command
    remove: Callable[[str], None]  # remove one by hand
    add_foreign: Callable[[], None]  # add a resource that is not detent's
    unsupported_schedule: str = ""  # a schedule that the host cannot express; "" if there is none


Check = Callable[[HostWorld], None]


def check_host(make: Callable[[], HostWorld]) -> list[str]:
    """Check every rule, each in a new world; return the rules that held."""
    for check in CHECKS:
        run_check(check, make())
    return [sentence(check) for check in CHECKS]


def run_check(check: Check, world: HostWorld) -> None:
    """Check one rule; an `AssertionError` names it."""
    if not __debug__:
        raise UsageError("check_host checks by assertions, which `python -O` leaves out: run it without -O")
    try:
        check(world)
    except AssertionError as error:
        raise AssertionError(f"{sentence(check)}: {error}") from error


def sentence(check: Check) -> str:
    return getattr(check, "__name__", str(check)).replace("_", " ")


# What the checks do.


def manifest_of(app: str, **jobs: str) -> dict[str, Any]:
    """A manifest with these jobs and schedules; `_` in a name becomes a hyphen."""
    made = [
        {"name": name.replace("_", "-"), "schedule": schedule, "command": f"echo {name}"}
        for name, schedule in jobs.items()
    ]
    return {"version": 2, "app": app, "jobs": made}


def standing(host: Host, document: Mapping[str, Any]) -> list[Change]:
    manifest = check_manifest(document)
    desired = host.render(specs_of(manifest))
    return reconcile(manifest.app, desired, host.find())


def apply(world: HostWorld, document: Mapping[str, Any]) -> list[Change]:
    """Apply the manifest like `detent apply`."""
    host = world.open(document["app"])
    with host.lock():
        changes = pending(standing(host, document))
        if changes:
            host.change(changes)
    return changes


def states(world: HostWorld, document: Mapping[str, Any]) -> dict[str, str]:
    return {one.name: one.state for one in standing(world.open(document["app"]), document)}


def prune(world: HostWorld, app: str) -> None:
    host = world.open(app)
    with host.lock():
        host.change(pending(reconcile(app, [], host.find())))


# The rules.


def applied_resources_are_found_unchanged(world: HostWorld) -> None:
    document = manifest_of("shop", backup="30 2 * * *", report="*/5 * * * *")
    done = apply(world, document)
    assert done and {change.action for change in done} == {"create"}, done
    assert set(states(world, document).values()) == {"unchanged"}, states(world, document)


def a_second_apply_changes_nothing(world: HostWorld) -> None:
    document = manifest_of("shop", backup="30 2 * * *", report="@every 7m")
    world.add_foreign()
    apply(world, document)
    before = dict(world.look())
    assert apply(world, document) == []
    assert world.look() == before


def a_manual_edit_is_drift_and_is_repaired(world: HostWorld) -> None:
    document = manifest_of("shop", backup="30 2 * * *", report="0 5 * * *")
    apply(world, document)
    before = dict(world.look())
    name = _names(world, document)[-1]
    world.edit(name)
    assert states(world, document)[name] == "edited", states(world, document)
    assert [change.name for change in apply(world, document)] == [name]
    assert world.look() == before


def a_removed_resource_is_written_again(world: HostWorld) -> None:
    document = manifest_of("shop", backup="30 2 * * *", report="0 5 * * *")
    apply(world, document)
    before = dict(world.look())
    name = _names(world, document)[-1]
    world.remove(name)
    assert states(world, document)[name] == "missing", states(world, document)
    apply(world, document)
    assert world.look() == before


def a_changed_job_is_outdated_and_is_updated(world: HostWorld) -> None:
    apply(world, manifest_of("shop", backup="30 2 * * *"))
    changed = manifest_of("shop", backup="45 2 * * *")
    found = states(world, changed)
    assert set(found.values()) <= {"outdated", "unchanged"} and "outdated" in found.values(), found
    apply(world, changed)
    assert set(states(world, changed).values()) == {"unchanged"}


def only_a_job_that_is_no_longer_declared_is_removed(world: HostWorld) -> None:
    both, one = manifest_of("shop", a="1 2 * * *", a_b="3 4 * * *"), manifest_of("shop", a_b="3 4 * * *")
    apply(world, one)
    alone = dict(world.look())
    apply(world, both)
    assert world.look() != alone
    apply(world, one)
    assert world.look() == alone


def an_app_whose_name_begins_like_another_is_left_alone(world: HostWorld) -> None:
    pay, pay_out = manifest_of("pay", out="1 2 * * *"), manifest_of("pay-out", a="3 4 * * *")
    apply(world, pay_out)
    alone = dict(world.look())
    apply(world, pay)
    assert set(states(world, pay_out).values()) == {"unchanged"}
    prune(world, "pay")
    assert world.look() == alone


def foreign_content_stays_unchanged_to_the_byte(world: HostWorld) -> None:
    world.add_foreign()
    foreign = dict(world.look())
    document = manifest_of("shop", backup="30 2 * * *")
    apply(world, document)
    apply(world, manifest_of("shop", backup="31 2 * * *", other="@daily"))
    prune(world, "shop")
    assert world.look() == foreign


def an_unsupported_schedule_is_refused_before_anything_is_written(world: HostWorld) -> None:
    if not world.unsupported_schedule:
        return
    before = dict(world.look())
    try:
        apply(
            world,
            manifest_of(
                "shop", fine="30 2 * * *", wrong=world.unsupported_schedule, too=world.unsupported_schedule
            ),
        )
    except UsageError as error:
        assert "shop.wrong" in str(error) and "shop.too" in str(error), error
    else:
        raise AssertionError(f"{world.unsupported_schedule!r} was accepted")
    assert world.look() == before


def odd_content_of_a_job_adds_no_further_resources(world: HostWorld) -> None:
    plain = manifest_of("shop", odd="30 2 * * *")
    apply(world, plain)
    names = set(world.look())
    entries = {change.name for change in standing(world.open("shop"), plain)}
    prune(world, "shop")
    odd = manifest_of("shop", odd="30 2 * * *")
    odd_text = ODD.replace("$", "$$")
    odd["jobs"][0] |= {
        "command": odd_text,
        "description": odd_text,
        "env": {"ODD": odd_text},
        "work_dir": odd_text,
    }
    apply(world, odd)
    assert set(world.look()) == names
    found = states(world, odd)
    assert set(found) == entries and set(found.values()) == {"unchanged"}, found


def the_longest_names_stay_distinct(world: HostWorld) -> None:
    document = manifest_of("shop" + LONG[:50])
    document["jobs"] = [
        {"name": f"{LONG[:60]}{end}", "schedules": ["1 2 * * *", "3 4 * * *"], "command": "true"}
        for end in "ab"
    ]
    apply(world, document)
    found = states(world, document)
    assert set(found.values()) == {"unchanged"}, found
    assert len(found) == len(set(found))
    prune(world, document["app"])


def concurrent_applies_leave_one_of_each_resource(world: HostWorld) -> None:
    document = manifest_of("shop", a="1 2 * * *", b="3 4 * * *", c="@every 7m")
    apply(world, document)
    alone = dict(world.look())
    prune(world, "shop")
    failed: list[str] = []

    def race() -> None:
        try:
            apply(world, document)
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")

    racers = [Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert failed == []
    assert world.look() == alone


def _names(world: HostWorld, document: Mapping[str, Any]) -> list[str]:
    return [*states(world, document)]


CHECKS: tuple[Check, ...] = (
    applied_resources_are_found_unchanged,
    a_second_apply_changes_nothing,
    a_manual_edit_is_drift_and_is_repaired,
    a_removed_resource_is_written_again,
    a_changed_job_is_outdated_and_is_updated,
    only_a_job_that_is_no_longer_declared_is_removed,
    an_app_whose_name_begins_like_another_is_left_alone,
    foreign_content_stays_unchanged_to_the_byte,
    an_unsupported_schedule_is_refused_before_anything_is_written,
    odd_content_of_a_job_adds_no_further_resources,
    the_longest_names_stay_distinct,
    concurrent_applies_leave_one_of_each_resource,
)
