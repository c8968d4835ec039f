"""Records: classes for plain data. They are frozen and slotted, and usually compared by identity.

For readers, type checkers and `match`, records are frozen dataclasses. Records exist because several are made for each
message, and because all classes are defined when the package is imported. A frozen dataclass sets each field with
`object.__setattr__`, and so is nearly three times as slow as a mutable one. To define a frozen dataclass takes as long
as ten small messages, plus the import of the module `dataclasses`.

A record is filled while it is a *draft*: an object of a mutable class with the same layout, where setting a field is a
plain store. After the last field its class is changed, and from then on it is immutable. For a record of eight fields,
CPython 3.11: 0.7 µs instead of 1.5 µs (a mutable dataclass: 0.55 µs), and 0.15 ms instead of 0.65 ms to define it.

A field whose name begins with an underscore remembers what the record has found out about itself. It is neither shown
nor compared nor copied.

More than half of the 0.7 µs is the call of a class, which collects the arguments and passes them on. The code that
makes records for each message uses the function that makes them, `constructor(Record)`: 0.3 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, dataclass_transform

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass_transform(eq_default=False, frozen_default=True, kw_only_default=True)
def record(*, eq: bool = False, kw_only: bool = True) -> Callable[[type[_T]], type[_T]]:
    """Make a class a record. Its annotations are the fields, and the values assigned to them are the defaults.

    A default is shared by all records, so it has to be immutable. If the class has `__post_init__`, it is called when
    all fields are set, to check them. Records cannot have subclasses.

    Args:
        eq: whether records with equal fields are equal; arrays cannot be compared like that.
        kw_only: whether fields are given by keyword only.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        fields = tuple(cls.__annotations__)
        body = {name: value for name, value in vars(cls).items() if name not in {"__dict__", "__weakref__"}}
        defaults = {name: body.pop(name) for name in fields if name in body}
        scope: dict[str, Any] = {"_new": object.__new__}
        made: Any = type(
            cls.__name__,
            cls.__bases__,
            {
                **body,
                "__qualname__": cls.__qualname__,
                "__slots__": fields,
                "__match_args__": () if kw_only else fields,
                "__new__": _maker(cls, fields, defaults, scope, kw_only=kw_only),
                **_METHODS,
                **(_COMPARING if eq else {}),
            },
        )
        scope["_made"] = made
        scope["_draft"] = type(cls.__name__, (made,), {"__slots__": (), **_OPEN})
        return made  # type: ignore[no-any-return]  # the class, made anew

    return decorate


def constructor(kind: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that makes records as their class does, in half the time.

    Args:
        kind: a record class whose fields are given by keyword only.
    """
    make: Any = kind.__new__
    return make  # type: ignore[no-any-return]  # what `exec` has made


def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a record class, in order."""
    names: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]  # of records
    return names


def replaced(value: _T, /, **changes: object) -> _T:
    """Return a record with other values in some fields; Python 3.13 calls this `copy.replace`."""
    return type(value)(**_values(value) | changes)


def _maker(
    cls: type, fields: tuple[str, ...], defaults: dict[str, Any], scope: dict[str, Any], *, kw_only: bool
) -> Callable[..., Any]:
    """Generate `__new__`, which is several times as fast as a loop over the fields.

    It knows the class, because records have no subclasses. So `constructor` can call it without one.
    """
    before = ["_cls=None", "/", *(["*"] if fields else [])] if kw_only else ["_cls"]
    lines = [
        f"def __new__({', '.join([*before, *fields])}):",
        "_self = _new(_draft)",
        *(f"_self.{name} = {name}" for name in fields),
        "_self.__class__ = _made",
        *(["_self.__post_init__()"] if hasattr(cls, "__post_init__") else []),
        "return _self",
    ]
    exec("\n ".join(lines), scope)  # noqa: S102 - our own text, made of names that stand in a class definition
    make: Any = scope["__new__"]
    if kw_only:
        make.__kwdefaults__ = defaults
    else:
        make.__defaults__ = tuple(defaults.values())
    make.__annotations__ = dict(cls.__annotations__)
    make.__module__, make.__qualname__ = cls.__module__, f"{cls.__qualname__}.__new__"
    return make  # type: ignore[no-any-return]  # what `exec` has made


def _values(self: object) -> dict[str, Any]:
    return {name: getattr(self, name) for name in field_names(type(self)) if not name.startswith("_")}


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    msg = f"a {type(self).__name__} cannot be changed; make another one with another {name}"
    raise AttributeError(msg)


def _represent(self: object) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in _values(self).items())})"


def _reduce(self: object) -> tuple[Any, ...]:
    """Support copying and pickling, if the values support it."""
    return _restore, (type(self), _values(self))


def _restore(cls: type, values: dict[str, Any]) -> object:
    return cls(**values)


def _is_equal(self: object, other: object) -> bool:
    if self is other:  # the same limits, for example, are compared for each answer
        return True
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(tuple(_values(self).values()))


_METHODS: Final[dict[str, Any]] = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__repr__": _represent,
    "__reduce__": _reduce,
    "__replace__": replaced,
}
_COMPARING: Final[dict[str, Any]] = {"__eq__": _is_equal, "__hash__": _hash}
_OPEN: Final[dict[str, Any]] = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
