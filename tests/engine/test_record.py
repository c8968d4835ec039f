"""Records: made by keywords, closed for good, and defined as the dataclasses that they look like."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any, Generic, TypeVar

import pytest

from streamcodec import DEFAULT_LIMITS, EndOfMessage, HeaderReceived, Into, Limits, RequestedOutput, RequestHeader
from streamcodec.engine.record import constructor, field_names, record, replaced

T = TypeVar("T")


@record()
class Point:
    """A place."""

    x: int
    """To the right."""
    y: int = 2

    @property
    def total(self) -> int:
        """Both."""
        return self.x + self.y


@record(eq=True, kw_only=False)
class Pair:
    """Equal to those with equal fields."""

    first: int
    second: object = None


@record()
class Box(Generic[T]):
    """Holds a thing."""

    content: T


@record()
class Even:
    """A number that has been checked."""

    number: int

    def __post_init__(self) -> None:
        """Refuse odd ones."""
        if self.number % 2:
            raise ValueError(self.number)


@record(eq=True, kw_only=False)
class Empty:
    """No fields at all."""


def test_fields_are_given_by_keyword_and_have_defaults() -> None:
    point = Point(x=1)
    assert (point.x, point.y, point.total) == (1, 2, 3)
    assert (Point(y=5, x=4).x, field_names(Point)) == (4, ("x", "y"))


@pytest.mark.parametrize(
    ("args", "options", "complaint"),
    [
        ((), {}, "required keyword-only argument: 'x'"),
        ((1,), {}, "positional"),
        ((), {"x": 1, "z": 1}, "unexpected keyword argument 'z'"),
    ],
    ids=["missing", "positional", "unknown"],
)
def test_arguments_that_do_not_fit(args: tuple[Any, ...], options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Point(*args, **options)


def test_a_constructor_makes_what_its_class_makes() -> None:
    point = constructor(Point)(y=5, x=4)
    assert (type(point), repr(point), constructor(Point)(x=1).y) == (Point, "Point(x=4, y=5)", 2)
    with pytest.raises(AttributeError, match="Point cannot be changed"):
        setattr(point, "x", 5)  # noqa: B010 - as a type checker does not allow it
    with pytest.raises(TypeError, match="'z'"):
        constructor(Point)(x=1, z=2)  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError, match="'x'"):
        constructor(Point)()  # type: ignore[call-arg]  # what is tested
    with pytest.raises(ValueError, match="3"):
        constructor(Even)(number=3)


def test_some_may_be_given_by_place() -> None:
    assert (Pair(1).second, Pair(1, 2).second, Pair(second=3, first=0).second) == (None, 2, 3)
    assert Empty() == Empty()
    match Pair(7):
        case Pair(first):
            assert first == 7


@pytest.mark.parametrize("name", ["x", "y", "z", "__class__"])
def test_nothing_can_be_changed_or_added(name: str) -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match="Point cannot be changed"):
        setattr(point, name, 5)
    with pytest.raises(AttributeError, match=name):
        delattr(point, name)
    assert not hasattr(point, "__dict__")
    assert (point.x, point.y) == (1, 2)


def test_the_class_is_the_one_that_was_called() -> None:
    assert type(Point(x=1)) is Point
    assert (Point.__name__, Point.__qualname__, Point.__module__, Point.__doc__) == (
        "Point",
        "Point",
        __name__,
        "A place.",
    )


def test_equality_is_identity_unless_asked_for() -> None:
    assert Point(x=1) != Point(x=1)
    assert Pair(1, 2) == Pair(1, 2)
    assert Pair(1, 2) != Pair(1, 3)
    other: object = 1
    assert Pair(1) != other
    pair = same = Pair(1, float("nan"))
    assert pair == same
    assert len({Pair(1), Pair(1), Pair(2)}) == 2


def test_text_form_names_the_fields() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=2)"
    assert repr(Box(content="a")) == "Box(content='a')"


@pytest.mark.parametrize("value", [Pair(1, "a"), DEFAULT_LIMITS, EndOfMessage(nbytes=3)], ids=repr)
def test_records_can_be_copied_and_pickled(value: object) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301 - ours
        assert type(other) is type(value)
        assert other == value


def test_another_one_with_another_value() -> None:
    assert replaced(Pair(1, 2), second=5) == Pair(1, 5)
    assert replaced(Limits(max_rank=3), max_tensors=4) == Limits(max_rank=3, max_tensors=4)
    with pytest.raises(TypeError, match="third"):
        replaced(Pair(1), third=1)


def test_fields_are_checked_when_all_are_set() -> None:
    assert Even(number=4).number == 4
    with pytest.raises(ValueError, match="3"):
        Even(number=3)


def test_signature_is_that_of_the_fields() -> None:
    assert str(inspect.signature(Point)) == "(*, x: 'int', y: 'int' = 2)"
    assert list(inspect.signature(RequestedOutput).parameters) == ["name", "binary_data", "parameters"]
    assert str(inspect.signature(Into)).startswith("(array: ")


def test_generic_records() -> None:
    event = HeaderReceived[RequestHeader](header=RequestHeader(tensors=()))
    assert type(event) is HeaderReceived
    assert Box[int](content=3).content == 3


def test_a_record_is_made_of_its_class_anew() -> None:
    def check(self: Any) -> None:  # noqa: ANN401 - of the class below
        checked.append((type(self), self.left, self.right))

    checked: list[tuple[type, int, int]] = []

    def made_by(make: Any, **members: Any) -> Any:  # noqa: ANN401 - a class that no type checker has seen
        return make(type("Made", (), members))

    body: dict[str, Any] = {"__annotations__": {"left": int, "right": int}, "right": 5, "__post_init__": check}
    variants: list[dict[str, bool]] = [{}, {"eq": True}, {"kw_only": False}]
    for options in variants:
        made = made_by(record(**options), **body)
        value = made(left=3)
        assert (type(value), value.left, value.right) == (made, 3, 5)
        assert (repr(value), field_names(made)) == ("Made(left=3, right=5)", ("left", "right"))
        assert checked.pop() == (made, 3, 5)
        assert made.__match_args__ == (() if options.get("kw_only", True) else ("left", "right"))
        assert (value == made(left=3)) is bool(options.get("eq"))
        with pytest.raises(AttributeError, match="a Made cannot be changed; make another one with another left"):
            value.left = 4
        with pytest.raises(TypeError, match="left"):
            made()
        assert (made.__new__.__module__, made.__new__.__qualname__) == (made.__module__, "Made.__new__")
        assert made.__new__.__annotations__ == {"left": int, "right": int}
    with pytest.raises(TypeError, match="positional"):
        made_by(record(), **body)(3)
    assert made_by(record(kw_only=False), **body)(3).left == 3
    assert repr(made_by(record(), __annotations__={})()) == "Made()"
