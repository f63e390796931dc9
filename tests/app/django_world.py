"""A Django project in a temporary folder, with an app in code and a PostgreSQL that can be restarted."""

from __future__ import annotations

from pathlib import Path

from tests.app.app_world import World
from tests.equipment.postgres_server import Server

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os

SECRET_KEY = "of the tests"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "postgres",
        "HOST": os.environ["DATABASE_FOLDER"],
        **({"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True} if "PERSISTENT" in os.environ else {}),
    }
}
"""
URLS = """
from django.http import HttpResponse
from django.urls import path

from shop.models import Visit

urlpatterns = [path("", lambda request: HttpResponse(str(Visit.objects.count())))]
"""
WSGI = """
import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
application = get_wsgi_application()

from shop.tasks import app

app.start(queues=["default"])
"""
MODELS = """
from django.db import models


class Visit(models.Model):
    name = models.TextField()
"""
TASKS = """
import os

import detent

from shop.models import Visit  # only once Django is set up

app = detent.Detent("shop", store=os.environ["STORE"])


def visit(name: str) -> str:
    Visit.objects.create(name=name)
    return Visit.objects.filter(name=name).get().name


@app.task(keep_result=True)
def plain(name: str) -> str:
    return visit(name)


@app.task(keep_result=True, single=True)
def alone(name: str) -> str:
    return visit(name)


@app.task(keep_result=True)
async def waiting(name: str) -> str:
    await Visit.objects.acreate(name=name)
    return (await Visit.objects.filter(name=name).aget()).name


@app.task(keep_result=True, isolation="thread")
def in_thread(name: str) -> str:
    return visit(name)


@app.task(keep_result=True, isolation="loop")
async def on_loop(name: str) -> str:
    await Visit.objects.acreate(name=name)
    return (await Visit.objects.filter(name=name).aget()).name
"""
COMMAND = """
from django.core.management.base import BaseCommand

from shop.tasks import app


class Command(BaseCommand):
    def handle(self, *args, **options):
        app.run()
"""
FILES = {
    "manage.py": MANAGE,
    "project/__init__.py": "",
    "project/settings.py": SETTINGS,
    "project/urls.py": URLS,
    "project/wsgi.py": WSGI,
    "project/asgi.py": WSGI.replace("wsgi", "asgi"),
    "shop/__init__.py": "",
    "shop/models.py": MODELS,
    "shop/tasks.py": TASKS,
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/management/commands/work.py": COMMAND,
}


class DjangoWorld(World):
    def __init__(self, folder: Path, server: Server) -> None:
        super().__init__(folder, f"sqlite:///{folder / 'fires.db'}")
        self.server = server
        self.env["DATABASE_FOLDER"] = str(server.directory)
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(name, text)
        server.sql("DROP TABLE IF EXISTS shop_visit")
        server.sql("CREATE TABLE shop_visit (id bigserial PRIMARY KEY, name text NOT NULL)")

    def restart(self) -> None:
        """Cut every connection to the database."""
        self.server.stop()
        self.server.start()
