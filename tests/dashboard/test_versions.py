"""A client that applies every delta has the whole document, whatever changed in between."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.dashboard.world import applied

from detent.dashboard import versions
from detent.dashboard.versions import Versions

ENTRIES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
DOCUMENTS = st.fixed_dictionaries(
    {"now": st.integers(0, 3), "headline": st.sampled_from(["well", "bad"])}
    | dict.fromkeys(versions.KEYED, ENTRIES)
)


def whole(kept: Versions) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kept.since(None))
    return found


@given(st.lists(st.tuples(DOCUMENTS, st.booleans()), min_size=1, max_size=12))
def test_deltas_lead_to_the_whole_document(steps: list[tuple[dict[str, Any], bool]]) -> None:
    kept, client = Versions("x"), None
    for document, looks in steps:
        kept.take(document)
        if client is None or looks:
            client = applied(client or {}, json.loads(kept.since(client and client["version"])))
            assert client == whole(kept)


def test_a_version_of_another_process_gets_the_whole_document() -> None:
    kept, other = Versions("x"), Versions("y")
    for one in (kept, other):
        one.take({"now": 1, "jobs": {}, "marks": {}, "buckets": {}})
    for version in (other.version, "x.99", "x.-1", "x.", "", "x.1e3", "x.²", "9" * 100):
        assert json.loads(kept.since(version))["since"] is None


def test_a_version_older_than_what_is_remembered_gets_the_whole_document() -> None:
    kept = Versions("x")
    empty: dict[str, Any] = {"jobs": {}, "buckets": {}}
    kept.take({"marks": {str(number): 1 for number in range(versions.GONE_MAX + 1)}} | empty)
    first = kept.version
    kept.take({"marks": {}} | empty)
    kept.take({"marks": {"a": 1}} | empty)
    assert json.loads(kept.since(first))["since"] is None
