"""`detent convert`: translates the file of another scheduler into a version 2 manifest.

- The manifest defines the same jobs as the original file.  Above each job is the line that it was made from.
- What has no equivalent is a warning on stderr, and a comment in the manifest if the format has comments.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from detent.cli.context import ManifestArgument, add_crontab
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.formats.base import Converted
from detent.loading.foreign import convert_file
from detent.manifest.check import check_manifest
from detent.manifest.fields import JOB
from detent.manifest.problems import ManifestError, format_problem
from detent.views.formatting import printable

EXAMPLE = "detent convert cronlock.yaml --to toml"
ORDER = ("version", "app", "store", "node", "secrets", "defaults", "jobs")
JOB_ORDER = {name: i for i, name in enumerate(JOB[2].names)}
WIDTH = 10_000  # so that commands are not folded

_BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "a crontab, a cronlock file, a Kubernetes CronJob or a systemd timer; - for standard input"
    parser.add_argument(
        "file", nargs="?", metavar="FILE", action=ManifestArgument, default=argparse.SUPPRESS, help=about
    )
    parser.add_argument("more", nargs="*", metavar="UNIT", help="more systemd units, or directories of units")
    add_crontab(parser)
    about = "the app's name (default: after the crontab's user, the key prefix, the namespace or the file)"
    parser.add_argument("--app", metavar="NAME", default="", help=about)
    about = "the output format (default: yaml)"
    parser.add_argument("--to", choices=("yaml", "toml", "json"), default="yaml", help=about)


def main(args: argparse.Namespace) -> int:
    if args.file is None:
        raise UsageError("name the file to convert, or --crontab FILE")
    file, env = args.file if isinstance(args.file, Path) else Path(args.file), dict(os.environ)
    found = convert_file(file, env, args.more)
    if args.app:
        found = found._replace(document=found.document | {"app": args.app})
    converted = _checked(found, file, env)
    for warning in converted.warnings:
        say(f"warning: {format_problem(warning, str(file))}")
    if args.output == "json":
        warnings = [
            {"file": one.file or None, "line": one.line or None, "path": one.path, "message": one.message}
            for one in converted.warnings
        ]
        write_json({"document": converted.document, "warnings": warnings})
    else:
        print("\n".join(WRITERS[args.to](converted, file)))
    return 0


def _checked(converted: Converted, file: Path, env: Mapping[str, str]) -> Converted:
    """Check that the manifest loads; order its fields, and add the warnings of the checker."""
    try:
        manifest = check_manifest(converted.document, lines=converted.lines, variables=env)
    except ManifestError as error:
        raise ManifestError(error.problems, str(file)) from None
    document = {name: converted.document[name] for name in ORDER if name in converted.document}
    jobs = [dict(sorted(job.items(), key=lambda field: JOB_ORDER[field[0]])) for job in document["jobs"]]
    warnings = converted.warnings + manifest.warnings
    return converted._replace(document={**document, "jobs": jobs}, warnings=warnings)


def _heading(converted: Converted, file: Path) -> Iterator[str]:
    yield f"# Made from {printable(str(file))} by `detent convert`."
    for warning in converted.warnings:
        yield f"# warning: {printable(format_problem(warning, file.name))}"


def _source(converted: Converted, number: int) -> list[str]:
    lines = converted.sources[number].splitlines() if number < len(converted.sources) else []
    return [f"# {printable(line)}" for line in lines]


def _write_json(converted: Converted, file: Path) -> Iterator[str]:
    yield json.dumps(converted.document, indent=2, ensure_ascii=False)


def _write_yaml(converted: Converted, file: Path) -> Iterator[str]:
    yield from _heading(converted, file)
    for name, value in converted.document.items():
        if name != "jobs":
            yield _yaml({name: value})
    yield "jobs:"
    for number, job in enumerate(converted.document["jobs"]):
        yield from (f"  {line}" for line in _source(converted, number))
        yield _yaml({"jobs": [job]}).removeprefix("jobs:\n")


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        style = "|" if _is_block(value) else None if value.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    made: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return made.removesuffix("\n")


def _is_block(text: str) -> bool:
    """Whether the text is several lines that a plain block scalar can hold."""
    lines = text.removesuffix("\n").split("\n")
    return len(lines) > 1 and all(line.strip() and line.isprintable() for line in lines) and text[0] != " "


def _write_toml(converted: Converted, file: Path) -> Iterator[str]:
    yield from _heading(converted, file)
    tables = {name: value for name, value in converted.document.items() if isinstance(value, dict)}
    for name, value in converted.document.items():
        if name != "jobs" and name not in tables:
            yield f"{name} = {_toml(value)}"
    for name, table in tables.items():
        yield from ("", f"[{name}]", *_toml_fields(table))
    for number, job in enumerate(converted.document["jobs"]):
        yield from ("", *_source(converted, number), "[[jobs]]", *_toml_fields(job))


def _toml_fields(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_toml_key(name)} = {_toml(value)}" for name, value in table.items())


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _toml(value: Any) -> str:
    """Write a value on one line.  TOML has the escapes of JSON, and needs one for DEL, too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_toml_fields(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


WRITERS = {"yaml": _write_yaml, "toml": _write_toml, "json": _write_json}
