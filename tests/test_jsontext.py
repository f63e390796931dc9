"""Our JSON is the standard library's, without what that loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import jsontext

SOURCES = str(Path(__file__).parents[1] / "src")
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
def test_what_is_written_is_the_same(value: object) -> None:
    assert jsontext.dumps(value) == json.dumps(value)
    compact = (",", ":")
    ours = jsontext.dumps(value, ensure_ascii=False, separators=compact)
    assert ours == json.dumps(value, ensure_ascii=False, separators=compact)


@given(VALUES, st.sampled_from(["", " ", "\n\t\r "]))
def test_what_is_read_is_the_same(value: object, blank: str) -> None:
    text = f"{blank}{json.dumps(value)}{blank}"
    assert jsontext.loads(text) == json.loads(text) == value
    assert jsontext.loads(text.encode()) == value


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_other_encodings_are_read_all_the_same(encoding: str) -> None:
    assert jsontext.loads('{"ä": [1]}'.encode(encoding)) == {"ä": [1]}
    assert jsontext.loads("1".encode(encoding)) == 1


BROKEN: list[str | bytes] = [
    "",
    " ",
    "{",
    "[1,]",
    "1 2",
    "nul",
    '"a',
    "\ufeff1",
    b"\xff",
    b'"\xff"',
    '{"a" 1}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_is_refused_in_the_same_words(text: str | bytes) -> None:
    with pytest.raises(ValueError) as theirs:
        json.loads(text)
    with pytest.raises(type(theirs.value)) as ours:
        jsontext.loads(text)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_is_refused_where_json_was_not_loaded_before(text: str | bytes) -> None:
    code = f"from detent.jsontext import loads\ntry: loads({text!r})\nexcept ValueError: print('refused')"
    run = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": SOURCES}, capture_output=True)
    assert run.stdout == b"refused\n", run.stderr


def test_numbers_that_json_has_no_word_for() -> None:
    assert jsontext.loads("[Infinity, -Infinity]") == [float("inf"), -float("inf")]
    assert str(jsontext.loads("NaN")) == "nan" and jsontext.dumps(float("nan")) == "NaN"
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsontext.dumps([float("inf")], allow_nan=False)


def test_what_is_not_json_is_left_to_the_caller_or_refused() -> None:
    assert jsontext.dumps({"path": Path("/a")}, default=str) == '{"path": "/a"}'
    with pytest.raises(TypeError, match="PosixPath is not JSON serializable"):
        jsontext.dumps([Path("/a")])
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        jsontext.dumps(circle)


def test_it_loads_neither_json_nor_regular_expressions() -> None:
    found = "print('json' in sys.modules, 're' in sys.modules)"
    code = f"import sys; from detent.jsontext import loads; loads('[1]'); {found}"
    run = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": SOURCES}, capture_output=True)
    assert run.stdout.split() == [b"False", b"False"], run.stderr
