"""Secrets that must not appear in a node's log or store."""

from pathlib import Path

from detent.manifest.check import Manifest, check_manifest
from detent.messages.masking import Mask
from detent.model import Ask, Outcome, Query, Report, Verdict
from detent.observe.secrecy import learn_on_load, masking_store, password_of, secrets_of
from detent.stores.memory.store import MemoryStore
from detent.testing.stores.fixtures import Asker, fire


def manifest(*refs: str, **secrets: str) -> Manifest:
    job = {
        "name": "j",
        "schedule": "@daily",
        "request": {"url": "http://h"},
        "auth": {"secret_refs": [*refs]},
    }
    hook = {"name": "k", "schedule": "@daily", "command": "true"}
    document = {"version": 2, "app": "a", "jobs": [job, hook], "secrets": secrets}
    return check_manifest(document | {"store": "redis://:from-the-store@h/0"})


def test_all_secrets_that_a_manifest_refers_to_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    found = manifest(
        "env:ONE", f"file:{tmp_path}/key", "TABLED", "env:ABSENT", TABLED="env:TWO", SPARE="literal"
    )
    env = {"ONE": "from-env", "TWO": "from-table", "DETENT_STORE": "postgresql://u:from%40env@h/d"}
    mask = Mask(secrets_of(found, env))
    secrets = ("from-env", "from-a-file", "from-table", "literal", "from-the-store", "from@env", "from%40env")
    assert [text for text in secrets if not mask.knows(f"<{text}>")] == []
    assert not mask.knows("nothing of it")


def test_a_manifest_that_is_loaded_again_has_its_new_secrets_left_out() -> None:
    mask, env = Mask(), {"ONE": "the-first"}
    load = learn_on_load(lambda: manifest("env:ONE"), mask, env)
    load()
    env["ONE"] = "the-second"
    load()
    assert mask.text("the-first, the-second, the-third") == "***, ***, the-third"


def test_a_url_without_a_password_has_none() -> None:
    for url in ("", "sqlite:///x", "redis://h/0", "redis://user@h", "http://[broken"):
        assert password_of(url) == []
    assert password_of("redis://:p%20w@h/0") == ["p w"]


def test_a_masking_store_keeps_no_secret_of_any_call() -> None:
    store = masking_store(MemoryStore(), Mask(["from-env"]))
    store.put([fire("a.b@1"), fire("a.b@2")])
    first, second = Asker(store).claim()
    verdict = Verdict(Outcome("failed", "it said from-env"))
    store.finish([Report(first, verdict, tail=b"from-env")])
    store.finish_and_claim([Report(second, verdict, tail=b"from-env")], Ask("a", "n1", 2))
    for key in ("a.b@1", "a.b@2"):
        (row,) = store.find(Query(key=key))
        (attempt,) = row.attempts
        assert b"***" in attempt.tail and "from-env" not in f"{row.outcome} {attempt}"
