"""A Flask app whose jobs detent fires: gunicorn flask_app:app (from this folder)."""

import os

from flask import Flask, current_app

from detent.receive import ReceivedFire, Receiver, Reject

app = Flask(__name__)
cron = Receiver(
    "billing",
    base_url=os.environ.get("APP_URL", "http://localhost:8000"),
    secrets=["env:CRON_SECRET"],
    dedupe=os.environ.get("RECEIPTS", "sqlite:///receipts.db"),
)


@app.get("/")
def home() -> str:
    return "an app like any other"


@cron.job("30 4 * * *", timezone="Europe/Berlin", timeout_seconds=300)
def send_invoices(fire: ReceivedFire) -> dict[str, object]:
    current_app.logger.info("attempt %d of %s", fire.attempt, fire.key)  # the app's context is there
    return {"day": fire.due_at.date().isoformat(), "attempt": fire.attempt}


@cron.job("*/5 * * * *", max_attempts=5)
def poll_bank(fire: ReceivedFire) -> None:
    if fire.body == b"closed":
        raise Reject("the account is closed")


app.register_blueprint(cron.blueprint())
