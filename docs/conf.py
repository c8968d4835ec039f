"""How the documentation is built: `sphinx-build -n -W docs OUT`. It needs the package installed, and no network.

The reference is written by the docstrings. They are plain text with `names` in single backquotes; here such a name
becomes a link where it is one of the public API. Tables of errors, limits and options come from the source, too, so
that there is one place to change.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

import streamcodec
from streamcodec.cli import main
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import field_names
from streamcodec.server import ServerOptions

sys.path.insert(0, str(Path(__file__).parent))
rooms = importlib.import_module("rooms")

project = "streamcodec"
author = "the streamcodec authors"
project_copyright = author
version = release = streamcodec.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "examples", "figures"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"streamcodec {version}"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False

default_role = "code"
myst_enable_extensions = ["deflist", "substitution"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_mock_imports = ["kserve", "orjson"]  # 66 packages; its tests have an environment of their own
autodoc_class_signature = "mixed"
napoleon_use_ivar = True
napoleon_use_rtype = False

# Names of other projects, which only a download of their indexes could turn into links.
nitpick_ignore_regex = [
    (r"py:.*", r"httpx\..*|InvalidInput|InferenceError"),
    (
        r"py:.*",
        r"(numpy|np|npt|h11|hypothesis|os|socket|ssl|pathlib|collections|contextlib|types|enum|typing|typing_extensions)\..*",
    ),
    (r"py:.*", r"(asyncio|anyio|aiohttp|kserve|opentelemetry|prometheus_client)\..*"),
    (r"py:.*", r"Infer(Request|Response)|InferenceError"),
    (r"py:.*", r"(BrokenResourceError|ClosedResourceError|Encoded|StartResponse)"),
    (
        r"py:.*",
        r".*\.(Encoded|StartResponse)|streamcodec\.asgi\.app\.StarletteRequest|.*\.FieldValues",
    ),
    (r"py:.*", r"(ndarray|dtype|ArrayLike|Connection|OSError|TimeoutError|TracebackType)"),
    (r"py:.*", r"(Mapping|Sequence|Iterable|Iterator|Callable|Protocol|Generic|Enum|StrEnum|Any|Self)"),
    # Type variables and private names of our own: they have no page.
    (r"py:.*", r"(.*\.)?(EventT|EventT_co|HeaderT|ValueT|MessageT|_T|PartT|_NeedData|_NeedData\.NEED_DATA|_Path)"),
    (
        r"py:.*",
        r"(.*\.)?(_NeedTurn|_NeedTurn\.NEED_TURN|OffsetFinder|Worker|TimeLimit|Offer|CallWatch|Plan|KnownBody|Hold|Quickness|Queues|Blocks|Seat)",
    ),
]

_PUBLIC_MODULES = (
    "streamcodec",
    "streamcodec.http",
    "streamcodec.service",
    "streamcodec.client",
    "streamcodec.server",
    "streamcodec.transports.sync",
    "streamcodec.transports.aio",
    "streamcodec.testing",
    "streamcodec.testing.strategies",
)


def _public_names(module: ModuleType) -> Iterator[str]:
    if hasattr(module, "__all__"):
        yield from module.__all__
        return
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield name


def _find_public() -> tuple[dict[str, str], dict[str, object]]:
    """Return where names are documented, by their short name and by the place of their definition; and what they are.

    A class is documented where users import it from, which is not where it is defined.
    """
    places: dict[str, str] = {}
    values: dict[str, object] = {}
    for module_name in _PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in _public_names(module):
            value = getattr(module, name)
            place = f"{module_name}.{name}"
            values[place] = value
            places.setdefault(name, place)
            if defined_in := getattr(value, "__module__", None):
                places[f"{defined_in}.{name}"] = place
    return places, values


_PLACES, _VALUES = _find_public()

# Aliases keep their names in signatures.
autodoc_type_aliases = {name: name for name in ("Buffer", "Event", "HttpEvent", "Place", "Predict")}
# Unions without a page of their own.
nitpick_ignore_regex.append((r"py:.*", r"Buffer|HttpEvent|Part|Encodable"))
# What a reader of frames needs of a decoder.
nitpick_ignore_regex.append((r"py:.*", r"(.*\.)?FrameDecoder"))
# What the clients alone pass to a connection, and get from it.
nitpick_ignore_regex.append((r"py:.*", r"streamcodec\.http\.(requests\.RequestForm|client\.WholeResponse)"))
nitpick_ignore_regex.append((r"py:.*", r"RequestForm|WholeResponse"))
# What lies behind the uploads of a service.
nitpick_ignore_regex.append((r"py:.*", r"streamcodec\.service\.uploads\..*"))


def _attribute_docs(module: str) -> dict[tuple[str, str], str]:
    """Return the strings under the assignments of a module, by class (or empty) and name."""
    analyzer = ModuleAnalyzer.for_module(module)
    return {place: " ".join(lines).strip() for place, lines in analyzer.find_attr_docs().items()}


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _error_table() -> str:
    docs = _attribute_docs("streamcodec.engine.errors")
    rows = [(f"[`{code}`](#{code})", docs["ErrorCode", code.name]) for code in streamcodec.ErrorCode]
    return _table(("Code", "What the peer did"), rows)


def _field_table(cls: type[Limits | ServerOptions]) -> str:
    docs = _attribute_docs(cls.__module__)
    defaults = cls()
    rows = [(f"`{name}`", _shown(name, getattr(defaults, name)), docs[cls.__name__, name]) for name in field_names(cls)]
    return _table(("Field", "Default", "Meaning"), rows)


def _shown(name: str, value: Any) -> str:  # noqa: ANN401 - the default of a field
    """Write a default as people say it: bytes in their units, large counts with separators."""
    if name == "max_memory_bytes":
        return "half of the memory"  # of the machine that serves, and not of the one that writes these pages
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if name.endswith("_bytes") and value >= 1 << power:
            return f"{value / (1 << power):g} {unit}"
    return "none" if value is None else f"{value:,}"


def _help(*arguments: str) -> str:
    """Return what a command says of itself."""
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*arguments, "--help"])
    return f"```text\n{text.getvalue()}```"


def _scrolled(figure: str) -> str:
    """Show a drawing that a phone scrolls: nobody could read its text if it were as narrow."""
    return f'```{{raw}} html\n<div style="overflow-x: auto"><div style="min-width: 720px">\n{figure}\n</div></div>\n```'


myst_substitutions = {
    "errors": _error_table(),
    "limits": _field_table(Limits),
    "server_options": _field_table(ServerOptions),
    "rooms": _scrolled(rooms.figure()),
    "help": _help(),
    "help_serve": _help("serve"),
    "help_infer": _help("infer"),
    "help_encode": _help("encode"),
    "help_bench": _help("bench"),
    "help_guard": _help("guard"),
    "help_demo": _help("demo"),
    "help_fuzz": _help("fuzz"),
    "help_inspect": _help("inspect"),
}

_QUOTED = re.compile(r"(?<![`:\w])`(?P<name>[A-Za-z_]\w*)(?P<rest>(\.\w+)?)(?P<call>(\(\))?)`(?!`)")


def _hide_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001, PLR0917 - the signature of a Sphinx handler
    """Keep napoleon from reading "type: meaning" into the first sentence about an attribute or a result."""
    hides = what in {"attribute", "property", "data"}
    for index, line in enumerate(lines):
        lines[index] = line.replace(":", _HIDDEN_COLON) if hides else line
        hides = line == "Returns:" or (hides and line != "")


_HIDDEN_COLON = "\N{PRESENTATION FORM FOR VERTICAL COLON}"


def _link_names(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:  # noqa: ARG001, PLR0917 - the signature of a Sphinx handler
    """Turn names of the public API in a docstring into links; give data the string under its assignment."""
    if what == "data":
        text = _data_doc(name.rpartition(".")[2])
        lines[:] = [text, ""] if text else lines
    in_literal = False
    for index, line in enumerate(line.replace(_HIDDEN_COLON, ":") for line in lines[:]):
        lines[index] = line
        in_literal = in_literal or line.lstrip().startswith(">>>")
        if not in_literal:
            lines[index] = _QUOTED.sub(lambda match: _link(match, name), line)


def _link(match: re.Match[str], here: str) -> str:
    place = _PLACES.get(match["name"])
    if place is None or here.startswith(place):
        return match[0]
    attribute = match["rest"].lstrip(".")
    if attribute and not inspect.isfunction(getattr(_VALUES[place], attribute, None)):
        return match[0]
    return f":py:obj:`{match['name']}{match['rest']}{match['call']} <{place}{match['rest']}>`"


def _data_doc(name: str) -> str | None:
    """Find the string under an assignment wherever it was made: autodoc looks only where it was imported to."""
    for place in _MODULES:
        if text := _attribute_docs(place).get(("", name)):
            return text
    return None


_MODULES = [
    f"streamcodec.engine.{name}"
    for name in ("compression.inflate", "datatypes", "events", "limits", "memory.placement", "receiving")
]
_MODULES += ["streamcodec.formats.v2.fields", "streamcodec.formats.v2.model", "streamcodec.http.heads.messages"]
_MODULES += ["streamcodec.service.models.model", "streamcodec.testing.mutations", "streamcodec.testing.assertions"]


_FORWARD_REFERENCE = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
"""What autodoc makes of an alias within a union."""


def _show_aliases(  # noqa: PLR0917 - the signature of a Sphinx handler
    app: Sphinx,  # noqa: ARG001
    what: str,  # noqa: ARG001
    name: str,  # noqa: ARG001
    obj: object,
    options: object,  # noqa: ARG001
    signature: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Show a union with an alias as the source has it; autodoc evaluates it and shows what is behind the alias."""
    annotation = str(getattr(obj, "__annotations__", {}).get("return"))
    signature = _FORWARD_REFERENCE.sub(r"\1", signature) if signature else signature
    result = _FORWARD_REFERENCE.sub(r"\1", result) if result else result
    return signature, annotation if "NeedData" in annotation else result


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contents: Any) -> Any:  # noqa: ANN401 - docutils has no types
    """Find a public name by its short name, or by the place of its definition."""
    place = _PLACES.get(node["reftarget"])
    if place is None or node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", place, node, contents)


def setup(app: Sphinx) -> None:
    # Napoleon's turn, at 500, is between the two.
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)
    app.connect("autodoc-process-docstring", _link_names, priority=600)
    app.connect("autodoc-process-signature", _show_aliases)
    app.connect("missing-reference", _resolve)
