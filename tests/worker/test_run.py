"""`detent run -f module:app` serves the app's tasks beside its jobs."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

from tests.worker.worker_world import Works, wait_for

from detent.model import Outcome


def test_a_node_of_an_app_with_tasks_serves_them(works: Works) -> None:
    node = works.launch(verb="run")
    node.wait("started")
    handle = works.tasks.quick.push("give", 5)
    assert handle.get(30) == 5
    assert node.end() == 0


def test_a_node_that_serves_other_queues_leaves_them_alone(works: Works) -> None:
    node = works.launch("--queues", "storm", verb="run")
    node.wait("started")
    handle, other = works.tasks.quick.push("give", 5), works.tasks.stormy.push(1)
    works.wait_starts(1, other)
    assert handle.state() == "pending" and len(works.starts()) == 1
    assert node.end() == 0


EMBEDDED = """
import sys, time
import worker_app

worker_app.app.start()
print("up", flush=True)
sys.stdin.read()
"""


def test_an_embedded_node_that_names_no_queues_serves_none(works: Works) -> None:
    words = [sys.executable, "-c", EMBEDDED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=works.env, cwd=works.directory, **pipes) as host:  # type: ignore[call-overload]
        assert host.stdout.readline() == "up\n"
        handle = works.tasks.quick.push("give", 5)
        store = works.app.open_store()
        wait_for(lambda: store.notes(works.name, "node/"), what="its heartbeat")
        worker = works.start()
        assert handle.get(30) == 5
        host.stdin.close()
        host.wait(60)
    assert len(works.starts()) == 1 and worker.end() == 0
    row = works.row(handle)
    assert row.attempts[0].node == worker.instance


def test_values_of_secrets_are_stored_nowhere(works: Works) -> None:
    """The app's own secret, which signs its messages."""
    secret = "the secret of the tests"
    worker = works.start()
    quick, once = works.tasks.quick, works.tasks.once
    said = [
        quick.push("give", [f"it is {secret}", 7]),
        quick.push("write", secret),
        once.push("fail", secret),
    ]
    given, written, failed = works.wait_over(said)
    assert said[0].get(1) == ["it is ***", 7]
    tail = works.row(said[1]).attempts[0].tail.decode()
    assert "printed ***" in tail and "errors ***" in tail and secret not in tail
    assert failed.outcome == Outcome("failed", "ValueError: ***")
    assert b"ValueError: ***" in works.row(said[2]).attempts[0].tail
    assert given.outcome == written.outcome == Outcome("succeeded")
    assert worker.end() == 0
    assert secret not in worker.log.read_text()


def test_a_worker_serves_metrics_of_its_messages(works: Works) -> None:
    worker = works.launch("q", "--metrics", "127.0.0.1:0", "--concurrency", "3")
    address = worker.wait("metrics-served")["address"]
    worker.wait("started")
    works.wait_over(works.tasks.quick.push_many([()] * 20))

    def lines() -> list[str]:
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            return answer.read().decode().splitlines()

    place = f'app="{works.name}"'
    wait_for(
        lambda: f'detent_attempts_total{{{place},outcome="succeeded",queue="q"}} 20.0' in lines(),
        what="20 attempts",
    )
    assert f'detent_slots{{{place},queue="q"}} 3.0' in lines()
    assert f'detent_running{{{place},queue="q"}} 0.0' in lines()
    assert f'detent_fires_total{{{place},job="quick",outcome="succeeded"}} 20.0' in lines()
    assert worker.end() == 0
