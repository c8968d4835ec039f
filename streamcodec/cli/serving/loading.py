"""Loading: imports the user's module, and makes what it serves.

If something cannot be found, one line says where it was looked for. If the user's own code fails, its traceback is
shown. It contains only the user's frames, and none of Python's import system or of this package.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.service import Model, ModelRegistry, Service

USUAL_NAMES: Final = ("service", "app", "MODELS", "models")
"""Names that are looked for in a module, in this order, if the user names no object."""

_HIDDEN: Final = ("<frozen importlib", str(importlib.__file__), __file__)
"""Files whose frames are not the user's."""

_MAX_SUGGESTIONS: Final = 3

Served = ModelRegistry | Service


class LoadingError(LocalProtocolError):
    """The user's code cannot be loaded.

    Attributes:
        files: the files where the error may be corrected.
    """

    def __init__(self, words: str, files: Iterable[str]) -> None:
        """Keep the message and the files."""
        super().__init__(words)
        self.files: tuple[str, ...] = tuple(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The object to serve."""

    served: Served
    source: str
    """Where it comes from, for messages."""


def check_path(text: str) -> None:
    """Refuse the path of no Python file; but a module may have the name of a directory, or of a file, beside it."""
    name = text.partition(":")[0]
    path = Path(name)
    package = name.partition(".")[0]
    is_data = path.suffix and path.is_file() and not (package.isidentifier() and find_spec(package))
    if path.suffix != ".py" and (is_data or (os.sep in name and path.exists())):
        raise LocalProtocolError(f"{name!r} is no Python file; name one, as my_models.py, or a module, as my_models")


def load(text: str) -> Loaded:
    """Import the object that `MODULE:OBJECT` or `MODULE` names; the path of a file may replace the module.

    Raises:
        LoadingError: there is no such module, or the user's code has failed; its traceback has then been shown.
        LocalProtocolError: the module has no such object, or the object cannot be served.
    """
    name, separator, path = text.partition(":")
    if "" not in sys.path:  # the current directory comes first
        sys.path.insert(0, "")
    module = _module_of_file(Path(name)) if name.endswith(".py") or os.sep in name else _imported(name)
    path = path if separator else _usual_name(module, name)
    found: Any = module
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise LocalProtocolError(f"{text!r}: {name!r} has no {attribute or 'object without a name'!r}") from None
    served = _served(_made(found, text) if callable(found) else found, f"{name}:{path}")
    return Loaded(served=served, source=f"{path!r} of {getattr(module, '__file__', None) or name}")


def load_anew(text: str) -> Loaded:
    """Do the same once more, with the present contents of the user's modules. If this fails, the old ones stay.

    Modules of Python and of installed packages stay as well.

    Raises:
        LoadingError: as of `load`.
        LocalProtocolError: as of `load`.
    """
    before = {name: sys.modules.pop(name) for name, _ in [*users_modules()] if name != "__main__"}
    importlib.invalidate_caches()
    try:
        return load(text)
    except BaseException:
        sys.modules.update(before)
        raise


def users_modules() -> Iterator[tuple[str, str]]:
    """Return names and files of the imported modules that belong neither to Python, nor to a package, nor to us."""
    for name, module in [*sys.modules.items()]:
        path = getattr(module, "__dict__", {}).get("__file__")  # a plain attribute access may load a lazy module
        if isinstance(path, str) and not path.startswith(_others()):
            yield name, path


@cache
def _others() -> tuple[str, ...]:
    """Return the folders whose files do not belong to the user."""
    import sysconfig  # noqa: PLC0415 - it takes 0.3 MB, and most servers load only once

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return *(sysconfig.get_path(name) + os.sep for name in names), str(Path(__file__).parents[2]) + os.sep


def _module_of_file(path: Path) -> ModuleType:
    """Import a file as a module of its folder, or of the package that contains it."""
    if not path.is_file():
        raise LoadingError(f"there is no file {str(path)!r} in {Path.cwd()}", [str(path)])
    folder, names = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, names = folder.parent, [folder.name, *names]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _imported(".".join(names))
    origin = getattr(module, "__file__", None)
    if origin is None or not path.samefile(origin):
        raise LocalProtocolError(f"{str(path)!r} has the name of another module, {origin}; rename it")
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
    """Return the first of the usual names in the module; a submodule, such as `models.py`, does not count."""
    for each in USUAL_NAMES:
        if not isinstance(getattr(module, each, module), ModuleType):
            return each
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        raise LocalProtocolError(f"{name!r} is a directory; name a Python file in it, as {name}{os.sep}my_models.py")
    servable = [each for each, value in vars(module).items() if isinstance(value, Model | ModelRegistry | Service)]
    others = ", or ".join(f"{name}:{each}" for each in servable[:_MAX_SUGGESTIONS]) or f"{name}:OBJECT"
    raise LocalProtocolError(f"{name!r} has none of {', '.join(USUAL_NAMES)}; say what to serve, as {others}")


def _made(factory: Any, text: str) -> object:  # noqa: ANN401 - whatever the user's module has
    """Call the function that makes the object to serve."""
    try:
        with suppress(ValueError):  # some callables have no known signature
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
    """Show where the user's code has failed; return the error that ends the command."""
    shown = traceback.TracebackException.from_exception(error)
    files = set(_keep_theirs(shown))
    sys.stderr.write("".join(shown.format()))
    return LoadingError(words, files)


def _keep_theirs(shown: traceback.TracebackException) -> Iterator[str]:
    """Drop frames that are not the user's, in chained exceptions too; return the files."""
    shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(_HIDDEN)]
    yield from (frame.filename for frame in shown.stack)
    if (of_syntax := getattr(shown, "filename", None)) is not None:
        yield of_syntax
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            yield from _keep_theirs(other)
