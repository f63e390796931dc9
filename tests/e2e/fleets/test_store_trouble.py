"""The store fails and recovers: nodes keep running, report it once and run nothing without a claim.

All failures of one kind of store run at the same time, each with a fleet of its own.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.e2e.fleets.hosts import Hosts, ServedPostgres, hosts_on, watched
from tests.e2e.fleets.once import once
from tests.e2e.fleets.troubles import LOG, TROUBLES, Trouble
from tests.equipment.fleet import LOOK_S, NEVER, PATIENCE_S, wait_for
from tests.equipment.postgres_server import Server, new_server, server_user, shared_server
from tests.equipment.small_disk import mounted

from detent.clock import instant

AT_ONCE = 5
CLAIM_S = 3
GOES_ON_S = 2.0  # the failure lasts this much longer after the work has ended
EVERY_S = 2
SLOW_S = 0.5  # for each answer; a timeout is ten times as long
QUARANTINE_S = 30  # an empty store grants nothing while a claim of its predecessor may still be trusted
ROWS = [(kind, name) for kind, troubles in TROUBLES.items() for name in troubles]


@pytest.mark.parametrize(("kind", "name"), ROWS)
def test_a_node_survives_a_failing_store_and_continues(
    kind: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lacks, failure = once(tmp_path_factory, f"trouble_{kind}", lambda folder: _suffer_all(kind, folder))[name]
    if lacks:
        pytest.skip(lacks)
    if failure:
        pytest.fail(failure, pytrace=False)


def _suffer_all(kind: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Return for each failure why it was skipped here, and how the test failed."""
    if kind == "postgres":
        shared_server()  # start it before the threads do
    troubles = sorted(TROUBLES[kind].items(), key=lambda item: not item[1].forgets)  # the longest first
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            name: pool.submit(suffer, kind, trouble, folder / f"{kind}_{number}")
            for number, (name, trouble) in enumerate(troubles)
        }
    return {name: _result(future.exception()) for name, future in futures.items()}


def _result(error: BaseException | None) -> tuple[str, str]:
    if isinstance(error, pytest.skip.Exception):
        return str(error), ""
    return "", "".join(traceback.format_exception(error)) if error else ""


def suffer(kind: str, trouble: Trouble, directory: Path) -> None:
    directory.mkdir()
    with _hosts_for(kind, trouble, directory) as hosts:
        policy = {"claim_seconds": CLAIM_S}
        hosts.write(
            hosts.job("tick", "sleep", "0", schedule=f"@every {EVERY_S}s", policy=policy),
            hosts.job("long", "deaf", "100", schedule=NEVER, policy=policy),
        )
        node = hosts.start()
        hosts.fire("long")
        work = hosts.witness.wait_start("long")
        hosts.witness.wait_start("tick")

        trouble.begin(hosts)
        node.wait("store-unavailable")
        wait_for(lambda: not work.alive(), what="the end of what cannot be renewed")
        launched, until = len(hosts.witness.starts()), time.monotonic() + GOES_ON_S
        wait_for(lambda: time.monotonic() > until)
        assert len(hosts.witness.starts()) == launched, "nothing runs without a claim"
        assert node.process.poll() is None

        trouble.end(hosts)
        node.wait("store-back")
        launched = len(hosts.witness.starts("tick"))
        resumed = hosts.witness.wait_start("tick", after=launched, within_s=QUARANTINE_S + PATIENCE_S)
        ended = time.time()
        wait_for(lambda: _is_settled(hosts, ended), what="the end of all that was due", every_s=LOOK_S)
        hosts.end()
        assert resumed.fence > work.fence
        assert (len(node.events("store-unavailable")), len(node.events("store-back"))) == (1, 1)
        hosts.witness.assert_no_overlap()
        hosts.witness.assert_launched_once()
        hosts.assert_nothing_is_held()
        if not trouble.forgets:
            _assert_all_is_accounted_for(hosts, work.key, ended)


def _is_settled(hosts: Hosts, until: float) -> bool:
    return all(row.state == "over" for row in hosts.find(until=instant(until)))


def _assert_all_is_accounted_for(hosts: Hosts, interrupted: str, ended: float) -> None:
    outcome = hosts.row(interrupted).outcome
    assert outcome is not None and outcome.kind == "lost"
    hosts.assert_nothing_unclaimed()
    rows = hosts.due("tick", instant(ended - EVERY_S))
    due = [int(row.fire.due_at.timestamp()) for row in rows]
    assert due == list(range(due[0], due[-1] + 1, EVERY_S)), "no instant of the outage is missing"
    for row in rows:
        assert row.state == "over" and row.outcome is not None, row.fire.key
        launched = len(hosts.witness.starts(key=row.fire.key))
        may_be = {"succeeded": (1,), "lost": (0, 1)}.get(row.outcome.kind, (0,))
        assert launched in may_be, (row.fire.key, row.outcome)


@contextmanager
def _hosts_for(kind: str, trouble: Trouble, directory: Path) -> Iterator[Hosts]:
    """On the shared server, or on a server of its own where the disk has to be full."""
    with ExitStack() as stack:
        if trouble.needs and kind == "postgres":
            served = ServedPostgres(directory.name, _server_on_small_disk(stack))
            yield stack.enter_context(watched(Hosts(directory, served)))
        else:
            if trouble.needs:
                stack.enter_context(mounted(directory / "redis", "2m"))
            yield stack.enter_context(hosts_on(kind, directory))


def _server_on_small_disk(stack: ExitStack) -> Server:
    server = new_server("restart_after_crash=off", "max_wal_size=4MB", "min_wal_size=2MB")
    stack.callback(server.remove)
    log = stack.enter_context(mounted(server.directory / LOG, "32m"))
    if user := server_user().get("user"):
        shutil.chown(log, user)
    server.make("--wal-segsize=1", f"--waldir={log}")
    server.start()
    return server


def test_a_node_waits_for_a_slow_store(hosts: Hosts) -> None:
    hosts.write(hosts.job("tick", "sleep", "0"), hosts.job("long", "sleep", "100", schedule=NEVER))
    node = hosts.start()
    key = hosts.fire("long")
    work = hosts.witness.wait_start("long")
    node.wait("success")  # its connections are open by now: opening one takes several slow answers
    hosts.proxy.delay(SLOW_S)
    hosts.witness.wait_start("tick", after=len(hosts.witness.starts("tick")) + 2)
    assert work.alive() and hosts.row(key).state == "claimed"
    assert node.events("store-unavailable") == [] == node.events("claim-lost")
    hosts.proxy.restore()
    hosts.nodes[0].kill()
    hosts.witness.assert_launched_once()
    hosts.witness.assert_no_overlap()


def test_a_node_waits_for_an_absent_store_at_its_start_unless_no_wait_is_given(hosts: Hosts) -> None:
    hosts.write(hosts.job("tick", "sleep", "0"))
    hosts.proxy.refuse()
    waiting, hasty = hosts.launch(), hosts.launch("--no-wait")

    assert hasty.process.wait(30) == 1
    (said,) = [line for line in hasty.plain_lines() if line]
    assert said.startswith("detent: the ") and f"127.0.0.1:{hosts.proxy.port}" in said
    assert hasty.events() == []
    hosts.nodes.remove(hasty)  # its line is not an event

    error = waiting.wait("store-unavailable")["error"]
    assert f"127.0.0.1:{hosts.proxy.port}" in error and error.endswith("; the node starts when it answers")
    assert waiting.events("started") == []
    hosts.proxy.restore()
    waiting.wait("store-back")
    hosts.witness.wait_start("tick")
    hosts.end()
    assert [len(waiting.events(event)) for event in ("store-unavailable", "store-back", "started")] == [
        1,
        1,
        1,
    ]


def test_a_wrong_password_at_the_start_is_reported(hosts: Hosts) -> None:
    hosts.write(hosts.job("tick", "sleep", "0"))
    password = TROUBLES["redis" if hosts.url.startswith("redis:") else "postgres"]["another password"]
    password.begin(hosts)
    refused = hosts.launch("--no-wait")
    assert refused.process.wait(30) == 1
    (said,) = [line for line in refused.plain_lines() if line]
    assert said.startswith("detent: the ") and "password" in said
    hosts.nodes.remove(refused)
    password.end(hosts)
