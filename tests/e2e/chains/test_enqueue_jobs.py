"""Jobs that push a message: once, with the end of the fire, signed, with the job's policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.app.app_world import APP, World
from tests.cli.cli_world import Detent as Verbs

from detent import Detent, UsageError
from detent.manifest.check import check_manifest
from detent.manifest.secret_refs import Secret
from detent.manifest.spec import specs_of
from detent.model import Ask, Claim, End, Fire, Job, Push, Query, Report
from detent.rules.outcomes import no_secret
from detent.rules.planning import fire_at, manual_fire
from detent.rules.settling import report as report_of
from detent.rules.settling import settle
from detent.runners.push import push
from detent.trigger.exit_codes import INTERNAL, exit_code_of

done: list[Any] = []
SECRET = "a secret of the shop"  # of the fixture `shop`
POLICY = {"timeout_seconds": 7, "retries": {"max_attempts": 3}, "concurrency": "Replace"}
MANIFEST = """
version: 2
app: shop
jobs:
  - name: invite
    schedule: "0 9 * * *"
    enqueue: {queue: mail, task: send, args: {who: everybody}, priority: high, expires_seconds: 60}
    auth: {secret_refs: ["file:{secret}"]}
"""


def invite(app: str, **fields: Any) -> Job:
    job = {"name": "invite", "schedule": "0 9 * * *", "enqueue": {"task": "send", "args": ["a"]}, **fields}
    return check_manifest({"version": 2, "app": app, "jobs": [job]}).jobs[0]


class Claimed:
    """A fire of the job, in the app's store and claimed."""

    def __init__(self, app: Detent, job: Job) -> None:
        self.store, self.app, self.work = app.open_store(), app.name, job.work
        watermarks = self.store.look(app.name)
        self.now = self.store.set_jobs(app.name, watermarks.generation, {job.name: job.revision}).now
        self.store.put([manual_fire(job, self.now.replace(microsecond=0), "x")])
        (self.claim,) = self.store.claim(Ask(app.name, f"host.{app.name}", 1)).claims

    def end(self, *secrets: Secret) -> End:
        assert isinstance(self.work, Push)
        return push(self.work, self.claim, secrets)

    def report(self, *secrets: Secret) -> Report:
        end = self.end(*secrets)
        return report_of(self.claim, settle(end, self.claim, None), end, self.now)  # type: ignore[arg-type]

    def messages(self) -> list[Fire]:
        return [row.fire for row in self.store.find(Query(app=self.app, origins=("push",)))]


def sending(app: Detent) -> None:
    done.clear()

    def send(who: str) -> None:
        done.append(who)

    app.task(send)


def test_a_fire_that_is_settled_twice_puts_one_message(shop: Detent) -> None:
    sending(shop)
    claimed = Claimed(shop, invite(shop.name))
    first = claimed.report(Secret(SECRET))
    assert claimed.messages() == []  # nothing is put before the fire is settled
    assert claimed.store.finish([first]) == claimed.store.finish([first])
    claimed.store.finish([claimed.report(Secret(SECRET))])
    assert [one.key for one in claimed.messages()] == [f"{shop.name}.send#{claimed.claim.fire.run_id}"]
    assert [(one.task, one.outcome) for one in shop.drain()] == [("send", "succeeded")]
    claimed.store.finish([first])
    assert shop.drain() == [] and done == ["a"]


@pytest.mark.parametrize("secrets", [(), (Secret("another"),)], ids=["unsigned", "forged"])
def test_a_message_without_a_valid_signature_is_refused(
    detent_app: Detent, secrets: tuple[Secret, ...], request: pytest.FixtureRequest
) -> None:
    app = Detent("shop", store=detent_app.open_store(), signing=f"raw:{SECRET}")
    sending(app)
    claimed = Claimed(app, invite("shop"))
    claimed.store.finish([claimed.report(*secrets)])
    (drained,) = app.drain()
    assert (
        drained.outcome == "rejected" and drained.reason.startswith(request.node.callspec.id) and done == []
    )


def test_a_job_without_its_secrets_fails_and_pushes_nothing(detent_app: Detent) -> None:
    claimed = Claimed(detent_app, invite(detent_app.name, auth={"secret_refs": ["env:NOWHERE"]}))
    end = claimed.end()
    assert end.outcome == no_secret("env:NOWHERE") and end.follow == ()
    assert exit_code_of(end.outcome) == INTERNAL  # of a trigger


def test_a_message_has_the_policy_of_its_job(detent_app: Detent) -> None:
    asked = {"task": "send", "queue": "mail", "priority": "high", "expires_seconds": 60}
    claimed = Claimed(detent_app, invite(detent_app.name, enqueue=asked, policy=POLICY))
    (made,) = claimed.end().follow
    policy = made.policy
    assert (policy.timeout_s, policy.retries.max_attempts, policy.on_lost) == (7.0, 3, "rerun")
    assert policy.concurrency == "Queue" and made.lane == f"{detent_app.name}#invite"
    assert made.queue == "mail^high" and made.start_by and (made.start_by - made.due_at).total_seconds() == 60


def test_the_spec_of_a_host_contains_the_message() -> None:
    document = json.loads(json.dumps({"version": 2, "app": "shop", "jobs": [_invited()]}))
    manifest = check_manifest(document)
    (spec,) = specs_of(manifest)
    again = check_manifest(json.loads(spec.text)).jobs[0]
    assert again.work == manifest.jobs[0].work and again.revision == manifest.jobs[0].revision
    assert spec.variables == ("MAIL_KEY",)


def _invited() -> dict[str, Any]:
    auth = {"secret_refs": ["env:MAIL_KEY"]}
    return {
        "name": "invite",
        "schedule": "0 9 * * *",
        "enqueue": {"task": "send", "args": {"b": 1}},
        "auth": auth,
    }


def test_the_verbs_show_the_message_and_its_queue(tmp_path: Path, detent: Verbs) -> None:
    (tmp_path / "mail").write_text(SECRET)
    (tmp_path / "mail").chmod(0o600)
    (tmp_path / "detent.yaml").write_text(MANIFEST.replace("{secret}", str(tmp_path / "mail")))
    assert "enqueue send on mail" in detent("show").out
    shown = detent("show", "invite").out
    for line in ("send on mail", '{"who": "everybody"}', "high", "60"):
        assert line in shown
    assert SECRET not in shown
    assert detent("show", "invite", "-o", "json").json["enqueue"]["args"] == {"who": "everybody"}
    assert detent("validate", "-o", "json").json == []


def test_a_trigger_pushes_one_message_for_a_worker(world: World) -> None:
    app = """
@app.task(queue="mail")
def send(fire: detent.Fire, who: str) -> None:
    note(who)
"""
    world.env["MAIL_KEY"] = SECRET
    world.write("shop.py", APP.replace('STORE"])', 'STORE"], signing="env:MAIL_KEY")'), app)
    invited = {**_invited(), "enqueue": {"task": "send", "queue": "mail", "args": ["everybody"]}}
    world.write("m.json", json.dumps({"version": 2, "app": "shop", "jobs": [invited]}))
    words = ("detent", "trigger", "shop.invite", "-f", "m.json", "--store", world.store)
    for _ in range(2):
        result = world.run(*words, "--due", "2026-03-01T09:00:00Z", "--lock-dir", str(world.folder / "locks"))
        assert result.returncode == 0, result.stderr
    drained = world.run("python", "-c", "import shop; print([one.outcome for one in shop.app.drain()])")
    assert drained.stdout.strip() == "['succeeded']", drained.stderr
    assert [tick.what for tick in world.ticks()] == ["everybody"]


def test_a_scheduled_and_a_manual_fire_push_two_messages(detent_app: Detent) -> None:
    job = invite(detent_app.name)
    claimed = Claimed(detent_app, job)
    planned: Claim = claimed.claim._replace(fire=fire_at(job, claimed.now.replace(microsecond=0)))
    assert isinstance(job.work, Push)
    keys = {push(job.work, claim, ()).follow[0].key for claim in (claimed.claim, planned, planned)}
    assert len(keys) == 2


# In code.


def test_a_schedule_may_push_a_task(detent_app: Detent) -> None:
    app = Detent("shop", store=detent_app.open_store(), signing="raw:sesame")
    done.clear()

    @app.job("0 9 * * *", args=["everybody"], enqueue={"priority": "high"}, timeout_seconds=9)
    @app.task(queue="mail", max_retries=2, backoff=(2, 30), timeout_seconds=7)
    def send(who: str) -> None:
        done.append(who)

    claimed = Claimed(app, app.manifest().jobs[0])
    claimed.store.finish([claimed.report(Secret("sesame"))])
    (message,) = claimed.messages()
    assert message.queue == "mail^high" and message.lane == ""
    assert message.policy.timeout_s == 9 and message.policy.retries[:3] == (3, 2, 30)
    assert [(one.task, one.outcome) for one in app.drain()] == [("send", "succeeded")]
    assert [(one.job, one.outcome) for one in app.fire_due("2027-01-01T09:00Z")] == [("send", "succeeded")]
    assert done == ["everybody", "everybody"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, r"enqueue= is for tasks: put @app\.task\(…\) below @app\.job\(…\)"),
        ({"args": [1, 2]}, r'task "send": too many positional arguments; it takes'),
        ({"enqueue": {"prio": "high"}}, r'unknown key "prio" at jobs\[0\].enqueue'),
        ({"isolation": "thread"}, r"`isolation` needs `call`, .* at jobs\[0\].isolation"),
    ],
)
def test_a_message_that_cannot_be_pushed_is_reported_with_the_reason(
    detent_app: Detent, options: dict[str, Any], says: str
) -> None:
    def send(who: str = "a") -> None: ...

    function = detent_app.task(send) if options else send
    with pytest.raises(UsageError, match=says) as raised:
        detent_app.job("0 9 * * *", **{"enqueue": True, **options})(function)  # type: ignore[typeddict-item]
        detent_app.manifest()
    assert re.search(r"test_enqueue_jobs\.py:\d+", str(raised.value))
