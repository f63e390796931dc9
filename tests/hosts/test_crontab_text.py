"""Our lines in a user's crontab: all other text stays unchanged to the byte."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.hosts.hosts_world import settings as host_settings
from tests.hosts.schedule_texts import PATHS, PATIENT
from tests.manifest.manifests import manifests

from detent.errors import UsageError
from detent.formats.crontab.convert import parse_crontab
from detent.hosts.crontab.host import open_host
from detent.hosts.crontab.text import HEADING, find_entries, make_entry, rewrite
from detent.hosts.reconcile import pending, reconcile
from detent.manifest.check import check_manifest
from detent.manifest.spec import specs_of

LINE = "1 2 * * * root detent trigger pay-out.a"
OTHERS = make_entry("detent-pay-out.a-0", "pay-out.a", "0" * 16, LINE).content
EDITED = OTHERS.replace("1 2", "3 4")
LINES = st.one_of(
    st.sampled_from(
        [
            "",
            "# a comment",
            "#",
            "MAILTO=ops",
            'SHELL = "/bin/fish"',
            "CRON_TZ=Asia/Tokyo",
            "30 2 * * * root /usr/local/bin/backup\r",
            "@daily root touch /x # detent-shop.a-0",
            "* * * * * root detent trigger shop.a",
            OTHERS,
            EDITED,
            f"# {OTHERS}",
        ]
    ),
    st.text(st.characters(exclude_characters="\n", exclude_categories=()), max_size=20),
)
FOREIGN = st.tuples(st.lists(LINES, max_size=6), st.sampled_from(["", "\n", "\n\n"])).map(
    lambda parts: with_heading("\n".join(parts[0]) + parts[1])
)


def with_heading(text: str) -> str:
    """Where another app has lines, the heading was written with them, and the file ends in a newline."""
    return f"{HEADING}\n{text}\n" if find_entries(text) else text


def ringable(document: Any) -> Any:
    """Without seconds, which no crontab has."""
    text = json.dumps(document).replace("@every 90s", "@every 7m")
    return {**json.loads(text.replace('"enabled": false', '"enabled": true')), "app": "pay"}


@settings(PATIENT, max_examples=5)
@given(manifests(2).map(ringable), FOREIGN, st.data())
def test_a_round_trip_keeps_foreign_lines_to_the_byte(
    document: Any, foreign: str, data: st.DataObject
) -> None:
    assume(_is_encodable(foreign))
    with TemporaryDirectory() as folder:
        table = Path(folder) / "crontab"
        table.write_bytes(foreign.encode("utf-8", "surrogateescape"))
        host = open_host(host_settings(Path(folder), "pay", cron_file=str(table)))
        desired = host.render(specs_of(check_manifest(document)))

        def drift() -> list[str]:
            return [change.state for change in pending(reconcile("pay", desired, host.find()))]

        def apply() -> None:
            host.change(pending(reconcile("pay", desired, host.find())))

        assert set(drift()) == {"missing"}
        apply()
        assert drift() == []
        assert {one[:5] for one in desired} == {
            (one.name, one.job, one.revision, one.content, one.kind)
            for one in host.find()
            if one.job.startswith("pay.")
        }
        applied = table.read_bytes()
        apply()
        assert table.read_bytes() == applied
        edit(table, data)
        assert set(drift()) <= {"edited", "missing", "surplus"} and drift()
        apply()
        assert drift() == []
        host.change(pending(reconcile("pay", [], host.find())))
        left = table.read_bytes() if table.exists() else b""
        assert left == foreign.encode("utf-8", "surrogateescape")
        assert list((Path(folder) / "specs").iterdir()) == []


def _is_encodable(text: str) -> bool:
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text
    except UnicodeEncodeError:
        return False


def edit(table: Path, data: st.DataObject) -> None:
    """Edits that people make: another time, commented out, deleted, copied."""
    text = table.read_bytes().decode("utf-8", "surrogateescape")
    lines = text.split("\n")
    ours = [int(entry.place) for entry in find_entries(text) if entry.job.startswith("pay.")]
    at = data.draw(st.sampled_from(ours))
    line = lines[at]
    lines[at : at + 1] = data.draw(
        st.sampled_from([[f"7 {line}"], [f"# {line}"], [], [line, line], [f"{line} "]])
    )
    table.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))


@settings(PATIENT, max_examples=30)
@given(PATHS, PATHS, st.sampled_from(["user", "system"]))
def test_whatever_the_paths_contain_exactly_our_entry_comes_back(specs: str, program: str, form: str) -> None:
    """Read as cron reads it, and split as the shell does."""
    options = {"cron_file": "/nowhere/crontab"} if form == "system" else {}
    host = host_settings(Path("/"), "shop", **options)._replace(
        spec_dir=Path(f"/{specs}"), detent=f"/{program}"
    )
    manifest = check_manifest(
        {"version": 2, "app": "shop", "jobs": [{"name": "a", "schedule": "30 2 * * *", "command": "true"}]}
    )
    try:
        entry = open_host(host).render(specs_of(manifest))[-1]
    except UsageError as error:
        assert "a crontab allows no backslash" in str(error) or "bytes" in str(error)
        return
    read = parse_crontab(entry.content + "\n", form)
    assert not read.problems
    (only,) = read.entries
    assert (only.schedule, only.user) == ("30 2 * * *", "root" if form == "system" else "")
    assert only.stdin is None
    words = shlex.split(only.command, comments=True)
    assert words[: words.index("2>&1")] == host.trigger_words("shop.a")


def test_new_lines_go_above_the_variables_of_others() -> None:
    text = f"SHELL=/bin/fish\n{OTHERS}\n"
    (entry,) = find_entries(text)
    assert not entry.intact and entry.content.startswith("SHELL=/bin/fish\n")
    wanted = make_entry("detent-pay-out.a-0", "pay-out.a", "0" * 16, LINE)
    change = pending(reconcile("pay-out", [wanted], [entry]))
    assert rewrite(text, change).split("\n")[2:] == ["SHELL=/bin/fish", ""]
