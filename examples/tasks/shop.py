"""Tasks: detent worker shop:app --concurrency 4, and python3 push.py (from this folder)."""

import logging
import os

import detent

app = detent.Detent("shop", store=os.environ.get("STORE", "sqlite:///shop.db"))
log = logging.getLogger(__name__)


@app.task(
    queue="mail",
    max_retries=3,
    backoff=(1, 60),
    jitter=0.1,
    timeout_seconds=30,
    keep_result=True,
    breaker="smtp",
)
def send(to: str, subject: str = "hi", fire: detent.Fire | None = None) -> int:
    """Gets its fire by the name of the parameter; callers leave it out."""
    if to.endswith("@down.example.org"):
        raise detent.BackendError("the mail server does not answer")  # the breaker counts it
    log.info("attempt %s: %s to %s", fire.attempt if fire else 1, subject, to)
    return len(subject)


@app.task(queue="mail", single=True)
async def audit(what: str) -> None:
    """Never runs twice at the same time in the whole fleet."""
    log.info("audited: %s", what)


@app.job("30 7 * * MON", timezone="Europe/Berlin")
def newsletter() -> int:
    """A job that pushes messages; `detent run -f shop:app` runs it."""
    return len(send.push_many([(f"{i}@example.org", "news") for i in range(1000)]))
