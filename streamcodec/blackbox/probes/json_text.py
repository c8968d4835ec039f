"""JSON text: text that is not JSON, or JSON that two parsers may read differently."""

from __future__ import annotations

from collections.abc import Callable

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import JSON, UTF8, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

_REFUSE = Expectation.REFUSE
_GRAMMAR = f"{JSON}: the grammar"
_UNIQUE = f"{JSON}, section 4: names are unique; else readers disagree"
_ENCODING = f"{JSON}, section 8.1: UTF-8 without a byte order mark"
_UTF8 = f"{UTF8}, section 3"
_STRINGS = f"{JSON}, section 7: control characters are escaped"
_SURROGATES = f"{JSON}, section 8.2: a lone surrogate has no defined meaning"
_NUMBERS = f"{JSON}, section 6: this is not a number"
_OBJECT = f"{V2}, inference request: an object"

_DEEP = 1000


def _text(change: Callable[[bytes], bytes]) -> Make:
    """Change the text of a good message; the declared length follows."""

    def make(target: Target) -> RawRequest:
        message = target.any_form()
        return target.send(message, text=change(message.text))

    return make


def _beginning_with(members: bytes) -> Make:
    """Put more members in front."""
    return _text(lambda text: b"{" + members + b"," + text[1:])


def _named(name: bytes) -> Make:
    """Send an id, written exactly as given between the quotation marks."""
    return _beginning_with(b'"id":"' + name + b'"')


PROBES = (
    Probe(
        "json/empty",
        _REFUSE,
        "no text",
        _GRAMMAR,
        lambda target: target.post(b"", "Content-Type: application/json"),
    ),
    Probe("json/blank", _REFUSE, "spaces only", _GRAMMAR, _text(lambda text: b" " * len(text))),
    Probe("json/cut", _REFUSE, "the last brace missing", _GRAMMAR, _text(lambda text: text[:-1])),
    Probe("json/two-objects", _REFUSE, "a second object after it", _GRAMMAR, _text(lambda text: text + b"{}")),
    Probe("json/trailing-nul", _REFUSE, "a NUL after it", _GRAMMAR, _text(lambda text: text + b"\0")),
    Probe(
        "json/trailing-comma", _REFUSE, "a comma before the last brace", _GRAMMAR, _text(lambda text: text[:-1] + b",}")
    ),
    Probe("json/comment", _REFUSE, "a comment", _GRAMMAR, _text(lambda text: b"/* a comment */" + text)),
    Probe(
        "json/apostrophes",
        _REFUSE,
        "apostrophes instead of quotation marks",
        _GRAMMAR,
        _text(lambda text: text.replace(b'"', b"'")),
    ),
    Probe("json/unquoted-name", _REFUSE, "a name without quotation marks", _GRAMMAR, _beginning_with(b'id:"1"')),
    Probe("json/vertical-tab", _REFUSE, "a vertical tab before it", _GRAMMAR, _text(lambda text: b"\x0b" + text)),
    Probe("json/nan", _REFUSE, "NaN outside of a tensor", _NUMBERS, _beginning_with(b'"unknown":NaN')),
    Probe("json/array", _REFUSE, "an array", _OBJECT, _text(lambda text: b"[" + text + b"]")),
    Probe("json/string", _REFUSE, "a string", _OBJECT, _text(lambda _: b'"inputs"')),
    Probe("json/null", _REFUSE, "null", _OBJECT, _text(lambda _: b"null")),
    Probe("json/duplicate-inputs", _REFUSE, "inputs twice, first empty", _UNIQUE, _beginning_with(b'"inputs":[]')),
    Probe("json/duplicate-id", _REFUSE, "two ids", _UNIQUE, _beginning_with(b'"id":"1","id":"2"')),
    Probe(
        "json/duplicate-shape",
        _REFUSE,
        "two shapes in one input",
        _UNIQUE,
        _text(lambda text: text.replace(b'"shape":', b'"shape":[7],"shape":', 1)),
    ),
    Probe(
        "json/byte-order-mark",
        _REFUSE,
        "a byte order mark before it",
        _ENCODING,
        _text(lambda text: b"\xef\xbb\xbf" + text),
    ),
    Probe("json/utf-16", _REFUSE, "UTF-16", _ENCODING, _text(lambda text: text.decode().encode("utf-16"))),
    Probe(
        "json/utf-32",
        _REFUSE,
        "UTF-32 without a mark",
        _ENCODING,
        _text(lambda text: text.decode().encode("utf-32-le")),
    ),
    Probe("json/latin-1", _REFUSE, "a byte that is not UTF-8, in a string", _UTF8, _named(b"\xff")),
    Probe("json/overlong", _REFUSE, "a character in more bytes than it needs", _UTF8, _named(b"\xc0\xaf")),
    Probe("json/surrogate-bytes", _REFUSE, "a surrogate as bytes", _UTF8, _named(b"\xed\xa0\x80")),
    Probe("json/beyond-unicode", _REFUSE, "a character beyond U+10FFFF", _UTF8, _named(b"\xf4\x90\x80\x80")),
    Probe(
        "json/lone-surrogate", _REFUSE, "an escaped surrogate without its other half", _SURROGATES, _named(b"\\ud800")
    ),
    Probe("json/raw-control", _REFUSE, "a line end within a string", _STRINGS, _named(b"a\nb")),
    Probe("json/raw-nul", _REFUSE, "a NUL within a string", _STRINGS, _named(b"a\0b")),
    Probe("json/bad-escape", _REFUSE, "an unknown escape", _STRINGS, _named(b"\\x41")),
    Probe(
        "json/deep",
        Expectation.EITHER,
        f"{_DEEP:,} nested arrays, in an unknown member",
        f"{JSON}, section 9: a reader may limit the depth",
        _beginning_with(b'"unknown":' + b"[" * _DEEP + b"]" * _DEEP),
    ),
)
"""The probes of this group."""
