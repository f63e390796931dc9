"""A node whose package is replaced on disk while it runs."""

import shutil

from tests.equipment.fleet import NEVER, SOURCES, Fleet


def test_python_calls_wait_for_a_restart_if_the_package_on_disk_speaks_another_protocol(fleet: Fleet) -> None:
    package = fleet.directory / "package"
    shutil.copytree(SOURCES / "detent", package / "detent", ignore=shutil.ignore_patterns("__pycache__"))
    fleet.write({"name": "job", "schedule": NEVER, "call": "os:getpid"})
    node = fleet.start(PYTHONPATH=str(package))
    program = package / "detent" / "runners" / "call" / "child_main.py"
    program.write_text(program.read_text().replace('PROTOCOL = "', 'PROTOCOL = "another '))
    key = fleet.fire("job")
    assert "restart this node" in node.wait("node-outdated")["reason"]
    row = fleet.row(key)
    assert (row.state == "over", row.attempts) == (False, ())
    assert node.end() == 0
    assert len(node.events("node-outdated")) == 1
    fleet.start(PYTHONPATH=str(package))
    over = fleet.wait_over(key)
    assert over.outcome and over.outcome.kind == "succeeded" and len(over.attempts) == 1
