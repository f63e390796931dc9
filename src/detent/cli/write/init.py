"""`detent init`: creates a manifest with three example jobs, and never overwrites a file."""

import argparse
from pathlib import Path

from detent.cli.tables import write_json
from detent.errors import UsageError
from detent.formats.base import NAME_MAX, slug
from detent.loading.config import MANIFEST_NAMES
from detent.text import quote

EXAMPLE = "detent init shop"
APP = "my-app"  # if the name of the directory is not valid for an app

STARTER = """\
# Jobs that must run once.  `detent validate` checks this file and `detent run` runs it; a running node
# picks up your changes.
version: 2
app: {app}

# Settings of all jobs; a job can override them.
defaults:
  timezone: UTC                  # or your own, such as Europe/Berlin

jobs:
  # Every ten seconds, on one of the nodes.  The variables DETENT_… describe the fire.
  - name: hello
    schedule: "@every 10s"
    command: echo "hello from $DETENT_JOB, due $DETENT_DUE"
    policy:
      catch_up: skip             # do not run missed fires after an outage

  # At 3:30 every day.  A string is run by the shell, a list of words without a shell.
  - name: nightly
    description: Put a backup or another nightly task here
    schedule: "30 3 * * *"
    command: |
      echo "this would be a backup"
    policy:
      timeout_seconds: 3600      # then the command and all its processes are killed
      retries: {{max_attempts: 3, min_seconds: 60, max_seconds: 600}}
    # Runs when the last attempt failed, and when the fire was lost or missed.  A URL here instead of a
    # command gets a POST with the fire as JSON.
    on_failure: echo "$DETENT_JOB ended as $DETENT_OUTCOME ($DETENT_REASON)" >&2

  # An HTTP request every five minutes on working days.  Set your URL, and remove `enabled: false`.
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
    app = slug(file.absolute().parent.name, NAME_MAX) or APP
    _write(file, STARTER.format(app=app))
    if args.output == "json":
        write_json({"file": str(file), "app": app})
        return 0
    named = "" if file == Path(MANIFEST_NAMES[0]) else f" -f {file}"
    print(f"wrote {file} with three example jobs of the app {app}; try:")
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


def _write(file: Path, text: str) -> None:
    """Write a new file.  A second default manifest in a directory would hide the first, or be hidden."""
    names = MANIFEST_NAMES if file.name in MANIFEST_NAMES else (file.name,)
    for other in map(file.with_name, names):
        if other.exists():
            raise UsageError(f"{quote(str(other))} already exists; name another file or directory")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
