"""Header length: wrong values of `Inference-Header-Content-Length`.

The value divides the body, so a server that misreads it takes JSON for tensors, or tensors for JSON. Many languages
parse numbers loosely: `strtol` and `atoi` stop at the first letter, and Python's `int` accepts signs, blanks and
underscores.
"""

from __future__ import annotations

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import BINARY, SEMANTICS
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD

_REFUSE = Expectation.REFUSE
_NUMBER = f"{BINARY}: the length of the JSON, a number"
_ONE = f"{SEMANTICS}, section 5.3: a field with one value is sent once"
_WITHIN = f"{BINARY}: the JSON and its tensors are the body"


def _saying(form: str) -> Make:
    """Write the length in another form."""
    return lambda target: target.send(target.binary(), length=form)


def _off_by(difference: int) -> Make:
    def make(target: Target) -> RawRequest:
        message = target.binary()
        return target.send(message, length=str(len(message.text) + difference))

    return make


def _past_body(target: Target) -> RawRequest:
    message = target.binary()
    return target.send(message, length=str(len(message.text + message.payload) + 1))


def _with_underscore(target: Target) -> RawRequest:
    message = target.binary()
    return target.send(message, length="_".join(str(len(message.text))))


def _garbage_inside(target: Target) -> RawRequest:
    message = target.binary()
    return target.send(message, text=message.text + b"garbage")


PROBES = (
    Probe(
        "header-length/suffix",
        _REFUSE,
        "the right number followed by letters, as 138abc",
        _NUMBER,
        _saying("{n}abc"),
    ),
    Probe("header-length/fraction", _REFUSE, "the right number as 138.0", _NUMBER, _saying("{n}.0")),
    Probe("header-length/exponent", _REFUSE, "the right number as 138e0", _NUMBER, _saying("{n}e0")),
    Probe("header-length/plus", _REFUSE, "the right number with a plus sign", _NUMBER, _saying("+{n}")),
    Probe("header-length/minus", _REFUSE, "a negative number", _NUMBER, _saying("-{n}")),
    Probe("header-length/hexadecimal", _REFUSE, "the right number in hexadecimal", _NUMBER, _saying("{n:#x}")),
    Probe("header-length/underscore", _REFUSE, "the right number as 1_3_8", _NUMBER, _with_underscore),
    Probe("header-length/blank-inside", _REFUSE, "the right number, a space and a 0", _NUMBER, _saying("{n} 0")),
    Probe("header-length/text", _REFUSE, "a word", _NUMBER, _saying("many")),
    Probe("header-length/empty", _REFUSE, "nothing", _NUMBER, _saying("")),
    Probe("header-length/list", _REFUSE, "the right number twice, with a comma", _NUMBER, _saying("{n}, {n}")),
    Probe(
        "header-length/repeated",
        _REFUSE,
        "two fields, the first one right",
        _ONE,
        lambda target: target.send(target.binary(), f"{HEADER_LENGTH_FIELD}: 1"),
    ),
    Probe("header-length/5000-digits", _REFUSE, "a number of 5,000 digits", _WITHIN, _saying("9" * 5000)),
    Probe("header-length/wrapped-32", _REFUSE, "the right number plus 2^32", _WITHIN, _off_by(1 << 32)),
    Probe("header-length/wrapped-64", _REFUSE, "the right number plus 2^64", _WITHIN, _off_by(1 << 64)),
    Probe("header-length/past-body", _REFUSE, "one byte more than the body has", _WITHIN, _past_body),
    Probe("header-length/short", _REFUSE, "one byte less than the JSON has", _WITHIN, _off_by(-1)),
    Probe("header-length/long", _REFUSE, "one byte more than the JSON has", _WITHIN, _off_by(1)),
    Probe(
        "header-length/garbage-inside",
        _REFUSE,
        "JSON followed by letters, with the length of both",
        _WITHIN,
        _garbage_inside,
    ),
)
"""The probes of this group."""
