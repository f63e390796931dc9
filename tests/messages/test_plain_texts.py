"""Texts that are judged without a regular expression, against the one that they stand for."""

import re
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from detent.text import is_unicode, quoted


@given(st.text())
def test_a_quoted_name_of_a_file_is_that_of_the_standard_library(text: str) -> None:
    assert quoted(text) == quote(text, safe="")


@given(st.text(st.characters(exclude_categories=())))
def test_half_a_surrogate_pair_is_no_unicode(text: str) -> None:
    assert is_unicode(text) == (re.search("[\ud800-\udfff]", text) is None)
