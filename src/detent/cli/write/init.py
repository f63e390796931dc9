"""`detent init`: a manifest to start from, with three jobs that show what there is.

It asks nothing and overwrites nothing; what it writes validates without a warning and runs at once.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from detent.cli.tables import write_json
from detent.errors import UsageError
from detent.loading.config import MANIFEST_NAMES
from detent.text import quote

EXAMPLE = "detent init shop"
APP = "my-app"  # where the directory's name is none that an app can have
APP_MAX = 63

STARTER = """\
# Jobs that must run once.  `detent validate` checks this file, `detent run` runs it, and a node
# that runs already takes over what you change here.
version: 2
app: {app}

# What jobs share; a job's own fields win.
defaults:
  timezone: UTC                  # or your own, like Europe/Berlin: it decides what 3:30 means

jobs:
  # Every ten seconds, on all nodes together: one of them runs it.  DETENT_… tells which fire this is.
  - name: hello
    schedule: "@every 10s"
    command: echo "hello from $DETENT_JOB, due $DETENT_DUE"
    policy:
      catch_up: skip             # after an outage, nobody needs old greetings

  # At 3:30 every day.  A string goes to the shell; a list of words runs a program without one.
  - name: nightly
    description: Put a backup here, or what else the night is for
    schedule: "30 3 * * *"
    command: |
      echo "this would be a backup"
    policy:
      timeout_seconds: 3600      # then it is ended, with everything it started
      retries: {{max_attempts: 3, min_seconds: 60, max_seconds: 600}}
    # Called when the last attempt has failed, and when the fire was lost or missed: write a mail, call
    # a webhook.  A URL here gets a POST with the fire as JSON.
    on_failure: echo "$DETENT_JOB ended as $DETENT_OUTCOME ($DETENT_REASON)" >&2

  # An HTTP request, every five minutes on working days.  It is off until you name a URL that answers.
  - name: ping
    enabled: false
    schedule: "*/5 8-17 * * MON-FRI"
    request:
      method: GET
      url: http://127.0.0.1:8000/health
    policy:
      timeout_seconds: 10
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    place = f"where to write it: a directory or a .yaml file (default: ./{MANIFEST_NAMES[0]})"
    parser.add_argument("place", nargs="?", default=".", metavar="PLACE", help=place)


def main(args: argparse.Namespace) -> int:
    file = _file(args.place)
    app = app_name(file.absolute().parent.name)
    _refuse_others(file)
    _write(file, STARTER.format(app=app))
    if args.output == "json":
        write_json({"file": str(file), "app": app})
        return 0
    named = "" if file == Path(MANIFEST_NAMES[0]) else f" -f {file}"
    print(f"wrote {file}: three jobs of the app {app}.  Try next:")
    for verb in ("next", "run", "history"):
        print(f"  detent {verb}{named}")
    return 0


def _file(place: str) -> Path:
    path = Path(place)
    if path.suffix.lower() in (".yaml", ".yml") and not path.is_dir():
        return path
    if path.suffix.lower() in (".toml", ".json"):
        raise UsageError(f"cannot write {quote(place)}: the starter is YAML; name a .yaml file")
    return path / MANIFEST_NAMES[0]


def _refuse_others(file: Path) -> None:
    """A second manifest beside a first one would be found by nobody, or instead of it."""
    names = MANIFEST_NAMES if file.name in MANIFEST_NAMES else ()
    there = next((one for name in names if (one := file.with_name(name)).exists()), None)
    if there is not None:
        raise UsageError(
            f"{quote(str(there))} is there already, and is left as it is; name another file or directory"
        )


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{quote(str(file))} is there already, and is left as it is; name another") from None


def app_name(directory: str) -> str:
    """The directory's name, as an app can have it."""
    slug = re.sub("[^a-z0-9]+", "-", directory.lower()).strip("-")[:APP_MAX].strip("-")
    return slug if slug[:1].isalpha() and slug.isascii() else APP
