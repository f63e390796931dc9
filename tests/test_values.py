"""Our NamedTuple is the standard library's, made later."""

import copy
import pickle
import typing

import pytest

from detent.values import NamedTuple


class Ours(NamedTuple):
    """A value."""

    first: str
    second: int = 2
    third: tuple[str, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    """A value."""

    first: str
    second: int = 2
    third: tuple[str, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"


class Lone(NamedTuple):
    only: int


class Never(NamedTuple):
    a: int
    b: int = 0


def test_it_behaves_like_theirs() -> None:
    ours, theirs = Ours("a"), Theirs("a")
    assert ours == theirs == ("a", 2, ())
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (ours.both, ours._asdict(), ours._fields) == (theirs.both, theirs._asdict(), theirs._fields)
    assert ours._replace(second=3) == theirs._replace(second=3) and type(ours._replace()) is Ours
    assert Ours._make(["b", 1, ()]) == Theirs._make(["b", 1, ()])
    assert Ours._field_defaults == Theirs._field_defaults and Ours.__doc__ == Theirs.__doc__
    assert Lone(1) == (1,) and Ours(first="a", third=("x",)).third == ("x",)


def test_it_can_be_sent_copied_and_matched() -> None:
    ours = Ours("a", 5)
    assert pickle.loads(pickle.dumps(ours)) == ours and type(copy.copy(ours)) is Ours
    match ours:
        case Ours(first, second=5):
            assert first == "a"
        case _:
            raise AssertionError("it does not match")


def test_it_stays_the_same_when_it_is_used_often() -> None:
    """Then its constructor is compiled."""

    class Used(NamedTuple):
        first: str
        second: int = 2

    class Heir(Used):
        pass

    for _ in range(200):
        assert Used("a") == Used(first="a") == Used("a", second=2) == ("a", 2)
        assert type(Heir("b", 1)) is Heir
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
            Used(second=1)


def test_what_was_never_made_can_be_made_of_values_and_sent() -> None:
    assert pickle.loads(pickle.dumps(Never._make([1, 2]))) == (1, 2)


@pytest.mark.parametrize("make", [Ours, Theirs])
def test_wrong_values_are_refused_alike(make: typing.Any) -> None:
    for values, named in [((), {}), (("a", 1, (), 4), {}), (("a",), {"fourth": 1})]:
        with pytest.raises(TypeError):
            make(*values, **named)
    with pytest.raises(TypeError):
        make._make(["a"])
    with pytest.raises(ValueError, match="unexpected field names"):
        make("a")._replace(fourth=1)
    with pytest.raises(AttributeError):
        make("a").first = "b"
