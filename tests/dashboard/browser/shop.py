"""The app that the browser looks at: jobs that fail, are slow or print hostile output, and messages."""

import os
import time

import detent

app = detent.Detent("shop", store=os.environ["SHOP_STORE"])
NEVER = "0 0 1 1 *"


@app.job("@every 2s")
def tick() -> None:
    print("tick")


@app.job(NEVER)
def report() -> None:
    print("\x1b[1mreport\x1b[0m \x1b[31mERROR\x1b[0m <script>document.title = 'owned'</script>")
    print("<img src=x onerror=alert(1)>")
    print("\x1b]8;;https://evil.example/\x07a link\x1b]8;;\x07 and invoice\u202efdp.exe")
    raise RuntimeError("the disk is full")


@app.job(NEVER)
def slow() -> None:
    print("\x1b[33mslow\x1b[0m began", flush=True)
    time.sleep(600)


@app.job("0 2 * * *", timezone="Europe/Berlin")
def backup() -> None:
    """Paused by a test."""


@app.job("30 2 28 3 *", timezone="Europe/Berlin")
def in_the_gap() -> None:
    """In some years the clock skips this time: on the last Sunday of March."""


@app.task(queue="mail", max_retries=0)
def send(to: str) -> None:
    if "@" not in to:
        raise ValueError(f"no address: {to}")


@app.job(NEVER, args=["all@example.org"])
@app.task(queue="mail")
def remind(to: str) -> None:
    print("reminded", to)


@app.task(queue="db")
def index(what: str) -> None:
    """No node of the test serves its queue."""
