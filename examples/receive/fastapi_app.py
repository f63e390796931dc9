"""A FastAPI app whose jobs detent fires: uvicorn fastapi_app:app (from this folder)."""

import os

from fastapi import FastAPI

from detent.receive import ReceivedFire, Receiver, Reject

app = FastAPI()
cron = Receiver(
    "billing",
    base_url=os.environ.get("APP_URL", "http://localhost:8000"),
    secrets=["env:CRON_SECRET"],
    dedupe=os.environ.get("RECEIPTS", "sqlite:///receipts.db"),
)


@app.get("/")
async def home() -> str:
    return "an app like any other"


@cron.job("30 4 * * *", timezone="Europe/Berlin", timeout_seconds=300)
async def send_invoices(fire: ReceivedFire) -> dict[str, object]:
    return {"day": fire.due_at.date().isoformat(), "attempt": fire.attempt}


@cron.job("*/5 * * * *", max_attempts=5)
def poll_bank(fire: ReceivedFire) -> None:
    if fire.body == b"closed":
        raise Reject("the account is closed")


app.mount("/", cron.asgi())  # last: it handles what no other route does
