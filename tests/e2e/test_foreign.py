"""Crontabs and cronlock files, run by real nodes."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.equipment.fleet import Fleet, NodeProcess, wait_for

from detent.model import Query, Row
from detent.stores.registry import open_store


def start(fleet: Fleet, *words: str, **env: str) -> NodeProcess:
    """A node for a foreign file, on the fleet's store."""
    line = [sys.executable, "-m", "detent", "run", *words, "--store", fleet.url]
    node = NodeProcess(line, fleet.env | env, fleet.directory / f"node-{len(fleet.nodes)}.log")
    fleet.nodes.append(node)
    node.wait("started")
    return node


def rows(fleet: Fleet, **query: object) -> list[Row]:
    with closing(open_store(fleet.url)) as store:
        found = store.find(Query(**{"limit": 1000, **query}))  # type: ignore[arg-type]
        return [row for one in found for row in store.find(Query(key=one.fire.key))]


def name_of(fleet: Fleet, file: Path, part: str) -> str:
    listed = fleet.ask("list", "--crontab", str(file)).decode()
    return next(line.split()[0] for line in listed.splitlines() if part in line)


def test_a_line_with_reboot_fires_once_a_boot_however_often_the_node_starts(fleet: Fleet) -> None:
    file, witness = fleet.directory / "crontab", fleet.directory / "booted"
    file.write_text(f"@reboot echo $DETENT_FIRE >> {witness}\n0 0 1 1 * true\n")
    node = start(fleet, "--crontab", str(file))
    node.wait("success")
    assert node.end() == 0

    again = start(fleet, "--crontab", str(file))
    fleet.ask("fire", name_of(fleet, file, "true-"), "--crontab", str(file), "--wait")  # it has looked around
    again.wait("success")
    (key,) = witness.read_text().splitlines()
    assert "@boot-" in key and [row.fire.key for row in rows(fleet) if "@boot-" in row.fire.key] == [key]


def test_a_crontabs_line_gets_its_input_its_shell_its_variables_and_its_home(fleet: Fleet) -> None:
    file, home = fleet.directory / "crontab", fleet.directory / "home"
    home.mkdir()
    lines = [
        f"HOME={home}",
        "SHELL=/bin/bash",
        "GREETING='hello  you'",
        r'0 0 1 1 * [[ -n $BASH_VERSION ]] && echo "$GREETING" && pwd && cat%it\'s "50\%"%$HOME `id`',
        "MAILTO=ann",
        "0 0 1 1 * true",
    ]
    file.write_text("\n".join(lines) + "\n")
    node = start(fleet, "--crontab", str(file))

    said = fleet.ask("fire", name_of(fleet, file, "0 0 1 1 *"), "--crontab", str(file), "--wait").decode()
    assert said.splitlines() == ["hello  you", str(home), 'it\\\'s "50%"', "$HOME `id`"]
    assert "no mail is sent" in node.wait("manifest-warning")["error"]


def test_background_processes_of_a_crontab_line_keep_running(fleet: Fleet) -> None:
    file, pid_file = fleet.directory / "crontab", fleet.directory / "pid"
    file.write_text(f"0 0 1 1 * sleep 60 > /dev/null 2>&1 & echo $! > {pid_file}\n")
    start(fleet, "--crontab", str(file))
    fleet.ask("fire", name_of(fleet, file, "sleep"), "--crontab", str(file), "--wait")
    pid = int(pid_file.read_text())
    try:
        assert rows(fleet)[0].state == "over" and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(
            b"sleep"
        )
    finally:
        os.kill(pid, 9)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run a command as another user")
def test_a_line_of_a_system_crontab_runs_as_its_user(fleet: Fleet) -> None:
    file = fleet.directory / "crontab"
    file.write_text("# m h dom mon dow user command\n0 0 1 1 * nobody id -un; pwd; echo $LOGNAME\n")
    start(fleet, "--crontab", str(file))
    said = fleet.ask("fire", name_of(fleet, file, "id-"), "--crontab", str(file), "--wait").decode()
    user, place, logname = said.splitlines()
    assert (user, logname) == ("nobody", "nobody") and Path(place).is_dir()


def test_a_changed_crontab_of_a_folder_is_loaded_again(fleet: Fleet) -> None:
    folder = fleet.directory / "cron.d"
    folder.mkdir()
    (folder / "one").write_text("0 0 1 1 * root true\n")
    node = start(fleet, "--crontab", str(folder))
    (folder / "two").write_text("0 0 1 1 * root /bin/echo two\n")
    assert [name[:-6] for name in node.wait("reloaded")["added"]] == ["cron-d.echo-two-"]


def test_a_cronlock_file_runs_as_it_did(fleet: Fleet) -> None:
    """Seconds, overlap skipped, a timeout, hooks with the job's environment, disabled jobs."""
    marker = fleet.directory / "marker"
    jobs = [
        {"name": "slow", "schedule": "* * * * * *", "command": f"echo run >> {marker}.slow; sleep 2.5"},
        {
            "name": "hangs",
            "schedule": "@every 1s",
            "command": "sleep 30",
            "timeout": "1s",
            "work_dir": str(fleet.directory),
            "env": {"GREETING": "${WHO:-nobody}"},
            "on_failure": "echo $GREETING $DETENT_OUTCOME $(pwd) >> marker.hook",
        },
        {
            "name": "resting",
            "schedule": "* * * * * *",
            "command": f"touch {marker}.resting",
            "enabled": False,
        },
    ]
    file = fleet.directory / "cronlock.yaml"
    document = {"node": {"grace_period": "0s"}, "redis": {"address": "localhost:6379"}, "jobs": jobs}
    file.write_text(yaml.safe_dump(document))
    node = start(fleet, "-f", str(file), WHO="you")

    node.wait("skipped", job="slow", count=2)
    node.wait("timed-out", job="hangs")
    wait_for((fleet.directory / "marker.hook").exists, what="the hook")
    node.wait("success", job="slow")
    hook = (fleet.directory / "marker.hook").read_text().splitlines()[0]
    assert hook == f"you timed-out {fleet.directory}"
    assert not Path(f"{marker}.resting").exists()
    skipped = [(said["cause"], said["reason"]) for said in node.events("skipped", job="slow")]
    assert all(cause == "lane" and "cronlock.slow@" in reason for cause, reason in skipped)


def test_two_cronlock_files_with_different_jobs_both_run(fleet: Fleet) -> None:
    """Also where they share a key prefix, and so an app."""
    for name in ("one", "two"):
        output, job = fleet.directory / f"output-{name}", f"{{name: {name}, schedule: '@every 1s', command: "
        file = fleet.directory / f"{name}.yaml"
        file.write_text(f"redis: {{key_prefix: 'shop:'}}\njobs:\n  - {job}echo {name} >> {output}}}\n")
        start(fleet, "-f", str(file))
    for name in ("one", "two"):
        output = fleet.directory / f"output-{name}"
        wait_for(
            lambda output=output: output.exists() and len(output.read_text().split()) > 1,
            what=f"fires of {name}",
        )
    assert {row.fire.job for row in rows(fleet)} == {"shop.one", "shop.two"}
