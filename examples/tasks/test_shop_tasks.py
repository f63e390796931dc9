"""How the shop's tasks are tested: pytest test_shop_tasks.py (from this folder)."""

import pytest


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STORE", "memory:")
    import shop

    return shop


def test_a_sent_mail_is_audited(shop) -> None:
    shop.send.options(then=shop.audit.message("sent")).push("a@example.org")
    assert [(one.task, one.outcome) for one in shop.app.drain()] == [
        ("send", "succeeded"),
        ("audit", "succeeded"),
    ]


def test_a_mail_server_that_is_down_is_a_backend_error(shop) -> None:
    shop.send.push("a@down.example.org")
    (first,) = shop.app.drain()
    assert (first.cause, first.again_in_s is not None) == ("backend", True)
