"""Loading: the user's module, and what it has to be served.

What cannot be found is told in one line that says where it was looked for. What fails in the user's own code is told
with its traceback, in which the user's frames are all that is shown: not those of Python's import system, nor ours.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.service import Model, ModelRegistry, Service

USUAL_NAMES: Final = ("service", "app", "MODELS", "models")
"""What is looked for in a module, in this order, if nobody says which of its objects is to be served."""

_HIDDEN: Final = ("<frozen importlib", str(importlib.__file__), __file__)
"""Files whose frames are not the user's."""

_MAX_SUGGESTIONS: Final = 3

Served = ModelRegistry | Service


class LoadingError(LocalProtocolError):
    """The user's code cannot be loaded.

    Attributes:
        files: where that may be mended.
    """

    def __init__(self, words: str, files: Iterable[str]) -> None:
        """Keep what is the matter, and where."""
        super().__init__(words)
        self.files: tuple[str, ...] = tuple(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What is to be served."""

    served: Served
    source: str
    """Where it comes from, in words."""


def load(text: str) -> Loaded:
    """Import what `MODULE:OBJECT`, or `MODULE` alone, names; a path of a file may stand for a module.

    Raises:
        LoadingError: there is no such module, or the user's code has failed, whose traceback has been shown by then.
        LocalProtocolError: there is no such object in it, or it is nothing that can be served.
    """
    name, separator, path = text.partition(":")
    module = _module(name)
    path = path if separator else _usual_name(module, name)
    found: Any = module
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise LocalProtocolError(f"{text!r}: {name!r} has no {attribute or 'object without a name'!r}") from None
    served = _served(_made(found, text) if callable(found) else found, f"{name}:{path}")
    return Loaded(served=served, source=f"{path!r} of {getattr(module, '__file__', None) or name}")


def _module(name: str) -> ModuleType:
    """Import a module, from the current directory first."""
    sys.path.insert(0, "")
    if name.endswith(".py") or os.sep in name:
        return _module_of_file(Path(name))
    return _imported(name)


def _module_of_file(path: Path) -> ModuleType:
    """Import a file as the module that it is in its folder, or in the package that this is a part of."""
    if not path.is_file():
        raise LoadingError(f"there is no file {str(path)!r} in {Path.cwd()}", [str(path)])
    folder, names = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    sys.path.insert(0, str(folder))
    module = _imported(".".join(names))
    origin = getattr(module, "__file__", None)
    if origin is None or not path.samefile(origin):
        raise LocalProtocolError(f"{str(path)!r} has the name of another module, {origin}; give it its own")
    return module


def _imported(name: str) -> ModuleType:
    if not all(name.split(".")):
        raise LocalProtocolError(f"{name!r} is neither a module, as my_models, nor a file, as my_models.py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(error, f"{name!r} cannot be imported") from None
        places = f"{Path.cwd()}, then on Python's path: PYTHONPATH and the packages of {sys.prefix}"
        expected = name.replace(".", os.sep) + ".py"
        raise LoadingError(f"{error}; it was looked for in {places}", [expected]) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code may do
        raise _failed(error, f"{name!r} cannot be imported") from None


def _usual_name(module: ModuleType, name: str) -> str:
    """Return the first of the usual names that the module has; a module of its own, as `models.py`, is none."""
    for each in USUAL_NAMES:
        if not isinstance(getattr(module, each, module), ModuleType):
            return each
    servable = [each for each, value in vars(module).items() if isinstance(value, Model | ModelRegistry | Service)]
    others = ", or ".join(f"{name}:{each}" for each in servable[:_MAX_SUGGESTIONS]) or f"{name}:OBJECT"
    raise LocalProtocolError(f"{name!r} has none of {', '.join(USUAL_NAMES)}; say what to serve, as {others}")


def _made(factory: Any, text: str) -> object:  # noqa: ANN401 - whatever the user's module has
    """Call what makes that which is to be served."""
    try:
        with suppress(ValueError):  # of some, nobody knows
            signature(factory).bind()
    except TypeError as error:
        raise LocalProtocolError(f"{text!r} cannot be called without arguments: {error}") from None
    try:
        return factory()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code may do
        raise _failed(error, f"{text!r} has failed") from None


def _served(found: object, text: str) -> Served:
    if isinstance(found, ModelRegistry | Service):
        return found
    models = [found] if isinstance(found, Model) else found
    if isinstance(models, Iterable):
        models = list(models)
        if all(isinstance(model, Model) for model in models):
            return ModelRegistry.of(models)
    kind = type(found).__name__
    raise LocalProtocolError(f"{text!r} is {kind}, not a Service, a Model, a list of Models or a ModelRegistry")


def _failed(error: BaseException, words: str) -> LoadingError:
    """Show where the user's code has failed; return the end of the command."""
    shown = traceback.TracebackException.from_exception(error)
    files = set(_keep_theirs(shown))
    sys.stderr.write("".join(shown.format()))
    return LoadingError(words, files)


def _keep_theirs(shown: traceback.TracebackException) -> Iterator[str]:
    """Leave frames out that are not the user's, also where one exception has led to another; return the files."""
    shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(_HIDDEN)]
    yield from (frame.filename for frame in shown.stack)
    if (of_syntax := getattr(shown, "filename", None)) is not None:
        yield of_syntax
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            yield from _keep_theirs(other)
