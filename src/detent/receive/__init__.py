"""The receiving side of apps whose jobs are HTTP requests: it declares jobs, serves the manifest, verifies
requests, calls the functions, and runs each fire once.

cron = Receiver("billing", base_url="https://app.example.com", secrets=["env:CRON_SECRET"])

@cron.job("0 2 * * *")
def send_invoices(fire: ReceivedFire) -> None: ...

app = cron.asgi(app)  # or cron.wsgi(app), cron.blueprint() for Flask, cron.urlpatterns() for Django
"""

from detent.receive.fire import ReceivedFire
from detent.receive.messages import Incoming, Reject, Reply
from detent.receive.receiver import Receiver

__all__ = ["Incoming", "ReceivedFire", "Receiver", "Reject", "Reply"]
