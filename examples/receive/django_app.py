"""A Django project in one file whose jobs detent fires: python django_app.py runserver 8000."""

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from detent.receive import ReceivedFire, Receiver, Reject

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for this example only"),
    MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
)
cron = Receiver(
    "billing",
    base_url=os.environ.get("APP_URL", "http://localhost:8000"),
    secrets=["env:CRON_SECRET"],
    dedupe=os.environ.get("RECEIPTS", "sqlite:///receipts.db"),
)


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("an app like any other")


@cron.job("30 4 * * *", timezone="Europe/Berlin", timeout_seconds=300)
async def send_invoices(fire: ReceivedFire) -> dict[str, object]:
    return {"day": fire.due_at.date().isoformat(), "attempt": fire.attempt}


@cron.job("*/5 * * * *", max_attempts=5)
def poll_bank(fire: ReceivedFire) -> None:
    if fire.body == b"closed":
        raise Reject("the account is closed")


urlpatterns = [path("", home), *cron.urlpatterns()]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
