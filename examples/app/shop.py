"""An app in code: python3 shop.py, or detent run -f shop:app (from this folder)."""

import logging
import os

import detent

app = detent.Detent("shop", store=os.environ.get("STORE", "sqlite:///shop.db"))
log = logging.getLogger(__name__)


@app.job("*/2 * * * * *")
def poll_bank(fire: detent.Fire) -> dict[str, object]:
    """Runs every other second, in a process that the warden can kill."""
    log.info("attempt %s of %s", fire.attempt, fire.key)
    return {"due": fire.due_at.isoformat()}


@app.job("30 4 * * *", timezone="Europe/Berlin", args=[30], timeout_seconds=600, max_attempts=3)
async def forget_carts(days: int) -> str:
    async with app.lock("carts", timeout=60) as held:
        return f"carts of the last {days} days stay, says {held.fence}"


if __name__ == "__main__":
    app.run()
