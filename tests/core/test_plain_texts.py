"""Texts that are judged without a regular expression, against the one that they stand for."""

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.core.shapes import NAME, _fits
from detent.core.text import is_unicode, quoted

NAMES = st.text("az09-AZ_.ä\n", max_size=70) | st.from_regex(NAME, fullmatch=True) | st.text(max_size=5)


@given(NAMES)
def test_a_name_is_what_its_pattern_says(text: str) -> None:
    assert _fits(NAME, text) == bool(re.fullmatch(NAME, text))


@pytest.mark.parametrize(("text", "fits"), [("a" * 63, True), ("a" * 64, False), ("", False), ("a\n", False)])
def test_a_name_has_its_ends(text: str, fits: bool) -> None:
    assert _fits(NAME, text) is fits


@given(st.text())
def test_a_quoted_name_of_a_file_is_that_of_the_standard_library(text: str) -> None:
    assert quoted(text) == quote(text, safe="")


@given(st.text(st.characters(exclude_categories=())))
def test_half_a_surrogate_pair_is_no_unicode(text: str) -> None:
    assert is_unicode(text) == (re.search("[\ud800-\udfff]", text) is None)
