"""What a call is started with."""

import json
from datetime import UTC, datetime

import pytest

from detent import Detent, UsageError
from detent.model import Call, Claim, Fire, Policy
from detent.runners.call.child_batch import Message
from detent.runners.call.child_main import PROTOCOL
from detent.runners.call.spec import call_spec, guard_spec, pool_spec, setup_of
from detent.runners.call.store import NodeStore, set_store
from detent.runners.command import fire_env

DUE = datetime(2026, 3, 1, 2, tzinfo=UTC)
FIRE = Fire("a.b@1", "a.b", DUE, run_id="r1", policy=Policy(timeout_s=5, max_running=3))
CLAIM = Claim(FIRE, "n.1", fence=9, attempt=2, ttl_s=30, expires_at=DUE, previous_success_at=DUE)
CALL = Call("billing:send", '{"a": [1, "ü"]}', work_dir="/x", kill_after_s=3)
STORE = NodeStore("a", "redis://:secret@db", {"key_prefix": "p"}, {"DETENT_STORE": "redis://:secret@db"})


def test_the_environment_of_a_pool_names_its_node() -> None:
    pool = pool_spec(CALL, {"A": "1"}, "n.1")
    assert dict(pool.env) == {"A": "1", "DETENT_NODE": "n.1"}
    assert (pool.work_dir, pool.user) == ("/x", "")


def test_the_name_of_a_pool_depends_on_directory_environment_and_user() -> None:
    def name(call: Call = CALL, **env: str) -> str:
        return pool_spec(call, {"PATH": "/bin", **env}, "n.1").name

    assert name() == name(CALL._replace(function="other:one", args="[]", kill_after_s=1.0))
    others = {name(CALL._replace(work_dir="/y")), name(CALL._replace(user="u")), name(A="1"), name(A="2")}
    assert len({name(), *others}) == 5
    assert name(A="\udcff") != name(A="?")


def test_a_child_gets_the_store_and_one_of_another_user_gets_no_password() -> None:
    assert NodeStore(*json.loads(setup_of(STORE, ""))["store"]) == STORE
    assert "secret" not in setup_of(STORE, "nobody")
    set_store(NodeStore(*json.loads(setup_of(STORE, "nobody"))["store"]))
    try:
        with pytest.raises(UsageError, match="a job with `user` does not get the store of its node"):
            Detent("a").open_store()
    finally:
        set_store(None)
    assert setup_of(STORE._replace(is_declared=True), "nobody") == "", "the app itself names it"


def test_what_a_child_reads_and_the_protocol_change_together() -> None:
    """A node may run while its package is upgraded.  If this fails: raise `PROTOCOL`, and correct this."""
    request = json.loads(call_spec(CLAIM, CALL, pool_spec(CALL, {}, "n.1")).request)
    assert (PROTOCOL, [*request], Message._fields, NodeStore._fields) == (
        "1",
        ["id", "function", "env", "previous_success", "keeps", "trace", "args"],
        (
            *("function", "keeps", "timeout_s", "job", "key", "run_id", "due", "attempt", "fence", "node"),
            *("previous_success", "trace", "args"),
        ),
        ("app", "url", "options", "env", "is_declared"),
    )


def test_a_request_has_the_arguments_and_the_variables_of_the_fire() -> None:
    variables = fire_env(CLAIM)
    spec = call_spec(CLAIM, CALL, pool_spec(CALL, {}, "n.1"))
    assert json.loads(spec.request) == {
        "id": "r1.2.9",
        "function": "billing:send",
        "args": {"a": [1, "ü"]},
        "env": variables,
        "previous_success": DUE.timestamp(),
        "keeps": False,
        "trace": "",
    }
    assert "\n" not in spec.request
    assert spec.tags == ("DETENT_RUN_ID=r1", "DETENT_ATTEMPT=2")
    terms = (spec.id, spec.ttl_s, spec.timeout_s, spec.kill_after_s, spec.places)
    assert terms == ("r1.2.9", 30, 5, 3, 3)


def test_a_guard_has_the_attempt_and_its_lane_and_no_time_between_the_signals() -> None:
    guard = guard_spec(CLAIM, "/lanes/a")
    assert (guard.id, guard.ttl_s, guard.lane, guard.places) == ("r1.2.9", 30, "/lanes/a", 3)
    assert guard.kill_after_s == 0.0
