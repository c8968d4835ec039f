"""The errors of safetensors, npy, npz and frames: their texts and their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import Limits, LocalProtocolError, MessageError, RemoteProtocolError, Rows, encode_raw_request
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import Kind, encode_frame, request_frame_decoder
from tests.engine.triad import refuse
from tests.formats.frame import test_frames as frames
from tests.formats.npy import files as npys
from tests.formats.npy import test_archive as archives
from tests.formats.safetensors import files as titled

ROWS = Rows("INT32", (1,), [np.zeros(1, "<i4")])


def _safetensors(name: str) -> MessageError | None:
    return titled.read(titled.REFUSED[name].data).error


def _npy(name: str) -> MessageError | None:
    return npys.read(npys.REFUSED[name].data).error


def _archive(name: str) -> MessageError:
    with pytest.raises(RemoteProtocolError) as caught:
        npys.read_archive(archives.REFUSED[name][0])
    return caught.value


def _frame(name: str) -> MessageError:
    return refuse(request_frame_decoder, frames.REFUSED[name][0])


TOLD: list[tuple[Callable[[str], MessageError | None], str, str, str | None, int | None]] = [
    (_safetensors, "nothing", "the message ends 8 bytes too early", None, 0),
    (_safetensors, "no text", "the header does not begin with a brace", None, 8),
    (_safetensors, "100 MB and a byte", "the header has 100000001 bytes, the format allows 100000000", None, 0),
    (_safetensors, "no UTF-8", "the header is not UTF-8", None, 10),
    (
        _safetensors,
        "half a surrogate pair",
        "a string of the header holds half of a surrogate pair",
        "$ (a member's name)",
        None,
    ),
    (_safetensors, "a control character", "the header is not JSON: invalid control character", None, 10),
    (_safetensors, "NaN", "the header holds NaN or Infinity", None, None),
    (_safetensors, "a member twice", "an object of the header has the member 'dtype' twice", "$.a", None),
    (_safetensors, "metadata of numbers", "the metadata are not an object of strings", "$.__metadata__", None),
    (
        _safetensors,
        "an entry that is a list",
        "a tensor is not an object with dtype, shape and data_offsets",
        "$['a']",
        None,
    ),
    (
        _safetensors,
        "an unknown dtype",
        "dtype 'F31' has no elements of whole bytes that numpy or ml_dtypes, if it is installed, knows",
        "$['a'].dtype",
        None,
    ),
    (_safetensors, "a size below zero", "a shape is not an array of integers >= 0", "$['a'].shape", None),
    (_safetensors, "2^63 elements", "the shape has more than 1099511627776 elements", "$['a'].shape", None),
    (_safetensors, "65 dimensions", "the shape has 65 dimensions, 64 are allowed", "$['a'].shape", None),
    (_safetensors, "one offset", "data_offsets are not two integers >= 0", "$['a'].data_offsets", None),
    (
        _safetensors,
        "a hole between",
        "the tensor begins at byte 5 of the data, the one before it ends at byte 4",
        "$['b'].data_offsets",
        None,
    ),
    (
        _safetensors,
        "a byte less",
        "data_offsets have 3 bytes, dtype and shape need 4",
        "$['a'].data_offsets",
        None,
    ),
    (_safetensors, "a byte behind", "the body goes on after the message has ended", None, 66),
    (
        _npy,
        "another magic",
        "the message does not begin as an npy file of version 1.0, 2.0 or 3.0 does",
        None,
        0,
    ),
    (_npy, "a long header", "the header has 10058 bytes, 10000 are allowed, as by numpy", None, 8),
    (_npy, "no dict", "the header is not the text of a dict of descr, fortran_order and shape", None, None),
    (
        _npy,
        "an order that is a string",
        "the header is not the text of a dict of descr, fortran_order and shape",
        "fortran_order",
        None,
    ),
    (_npy, "a member twice", "the header has the member shape twice", "shape", None),
    (_npy, "a shape that is a number", "shape is not a tuple of integers >= 0", "shape", None),
    (_npy, "2^63 elements", "the shape has more than 1099511627776 elements", "shape", None),
    (
        _npy,
        "objects",
        "descr '|O' is no dtype of plain values; objects and structures are not read",
        "descr",
        None,
    ),
    (
        _npy,
        "a structure",
        "descr of several fields is no dtype of plain values; objects and structures are not read",
        "descr",
        None,
    ),
    (_npy, "a byte missing", "the message ends 1 byte too early", None, 71),
    (_archive, "no archive", "the end of the archive does not fit what has come", None, 4),
    (_archive, "several disks", "the end of the archive does not fit what has come", None, 127),
    (
        _archive,
        "a compressed member",
        "member 'a.npy' of the archive is compressed, encrypted, or of unknown size",
        None,
        None,
    ),
    (_archive, "two sizes", "member 'a.npy' of the archive has no one size", None, None),
    (
        _archive,
        "a size too small",
        "member 'a.npy' of the archive does not have the 152 bytes of its array",
        None,
        None,
    ),
    (_archive, "another checksum", "member 'a.npy' of the archive has another checksum than was said", None, None),
    (_archive, "no npy file", "member 'a.txt' of the archive is no npy file", None, None),
    (_archive, "a name that is no UTF-8", "the name of a member of the archive is not UTF-8", None, None),
    (_archive, "a name twice", "member 'a.npy' of the archive comes twice", None, None),
    (_archive, "another name", "member 'a.npy' of the archive is not so in the directory", None, None),
    (_archive, "a byte behind", "the body goes on after the message has ended", None, 73),
    (_frame, "no magic", "no frame begins here", None, 0),
    (_frame, "a wrong check", "the head of the frame is damaged: its check is wrong", None, 4),
    (_frame, "version 2", "the frame has version 2; only 1 is known", None, 8),
    (_frame, "a response", "the frame holds a response where a request was expected", None, 9),
    (_frame, "kind 2", "the frame's kind is 2, which is neither a request (0) nor a response (1)", None, 9),
    (
        _frame,
        "checksum 2",
        "the frame's checksum is of kind 2, which is neither none (0) nor CRC-32 (1)",
        None,
        10,
    ),
    (_frame, "a reserved byte", "the reserved byte is not 0", None, 11),
    (_frame, "no JSON header", "the JSON header has 0 of the body's 94 bytes; it has 1 to all", None, 12),
    (_frame, "a header of 4 GiB", "the header has 4294967295 bytes or more, 67108864 are allowed", None, 24),
    (_frame, "a body of 2**63", "the message has 9223372036854775808 bytes or more, 17179869184 are allowed", None, 24),
    (_frame, "a byte too few", "the body has 93 bytes, its header and tensors need 94", None, 117),
    (_frame, "a wrong checksum", "the frame is damaged: its checksum is wrong", None, 118),
]


@pytest.mark.parametrize(("read", "name", "message", "path", "offset"), TOLD)
def test_what_is_wrong_is_told_with_its_place(
    read: Callable[[str], MessageError | None], name: str, message: str, path: str | None, offset: int | None
) -> None:
    error = read(name)
    assert error is not None
    assert (error.message, error.path, error.offset) == (message, path, offset)


@pytest.mark.parametrize("surplus", [-1, 1])
def test_a_length_that_does_not_fit_is_told(surplus: int) -> None:
    data = titled.ACCEPTED["one tensor"]
    length = len(data) + surplus
    error = titled.read(data, length=length).error
    assert error is not None
    assert error.message == f"the file has {length} bytes, its header and tensors need {len(data)}"
    assert error.offset == min(length, len(data))
    data = npys.saved(npys.SQUARE)
    length = len(data) + surplus
    error = npys.read(data, length=length).error
    assert error is not None
    assert error.message == f"the file has {length} bytes, its header and array need {len(data)}"
    assert error.offset == min(length, len(data))


def test_how_many_values_a_header_may_have_is_told() -> None:
    error = titled.read(titled.file('{"a":[' + "1," * 66_000 + "1]}"), limits=Limits(max_tensors=1)).error
    assert error is not None
    assert error.message == "the header has more than 65600 values and delimiters, too many for 1 tensors"


ODD: Any = {"list": [1], "number": 3, "rows": {"a": ROWS}}


def _read_twice() -> None:
    archive = npy.Archive()
    archive.decoder()
    archive.decoder()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: npy.encode(ODD["list"]), "values are a numpy array or Rows, not list"),
        (lambda: npy.encode_archive(ODD["rows"]), "Rows cannot be archived: their checksum comes before them"),
        (
            lambda: npy.encode_archive({"\0": np.zeros(1)}),
            "the name of a member is a text of less than 65,536 bytes, without zeros",
        ),
        (_read_twice, "the archive is read one message after the other, and each to its end"),
        (
            lambda: safetensors.encode({"__metadata__": np.zeros(1)}),
            "names and metadata are strings, and no tensor is called __metadata__",
        ),
        (
            lambda: safetensors.encode({"\ud800": np.zeros(1)}),
            "a name, or the metadata, hold half of a surrogate pair",
        ),
        (lambda: safetensors.encode({"a": ODD["number"]}), "tensor 'a' is a numpy array or Rows, not int"),
        (
            lambda: safetensors.encode({"a": np.array([b"x"], object)}),
            "safetensors has no dtype for numpy's object, of tensor 'a'",
        ),
        (
            lambda: encode_frame(encode_raw_request(np.zeros(3)), Kind.REQUEST),
            "a frame holds a V2 message that begins with its JSON header: neither a compressed nor a raw one",
        ),
    ],
)
def test_a_mistake_of_ones_own_is_told(mistake: Callable[[], object], message: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        mistake()
    assert str(caught.value) == message
