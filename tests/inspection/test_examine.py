"""What is found in messages of every form, valid and not, in files and in pipes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from streamcodec import LocalProtocolError, Tensor, encode_request
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import Checksum, Kind, encode_frame
from streamcodec.inspection import Form, Report, examine
from streamcodec.testing import ExpectedMessage
from streamcodec.testing.strategies import mutated_messages
from tests.captures import Capture, Layer, captures
from tests.cputime import least_cpu_seconds
from tests.effort import examples
from tests.inspection.sources import Bytes, http_request, inspected, request, response

IMAGE = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
BODY, LENGTH = request(x=np.arange(6, dtype="<f4").reshape(2, 3), flags=np.array([True, False]))


def _marked(report: Report) -> bytes:
    """The bytes from the marked one on."""
    assert report.failure is not None
    view = report.failure.view
    assert view is not None
    return view.data[view.marked - view.start :]


# Forms


def test_a_body() -> None:
    report = inspected(BODY)
    assert report.is_valid, report.failure
    assert report.form == "request body"
    assert report.header is not None
    assert report.header.nbytes == LENGTH
    x, flags = report.tensors
    assert (x.name, x.datatype, x.shape, x.nbytes, x.offset) == ("x", "FP32", (2, 3), 24, LENGTH)
    assert x.first_values == ("0.0", "1.0", "2.0", "3.0", "4.0", "5.0")
    assert flags.first_values == ("True", "False")
    assert x.statistics is not None
    assert (x.statistics.minimum, x.statistics.maximum, x.statistics.mean) == (0, 5, 2.5)
    assert [(each.name, each.start, each.nbytes) for each in report.segments] == [
        ("header", 0, LENGTH),
        ("x", LENGTH, 24),
        ("flags", LENGTH + 24, 2),
    ]
    assert report.notes == (f"the length of the JSON header is not declared; {LENGTH} was found",)
    assert examine(Bytes(BODY), header_length=LENGTH) == replace(report, notes=())


def test_alignment() -> None:
    for blanks in range(16):
        (x,) = inspected(b" " * blanks + request(x=np.zeros(4))[0]).tensors
        assert x.offset is not None
        assert x.alignment is not None
        assert x.offset % x.alignment == 0
        assert x.offset % (2 * x.alignment) != 0


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_pipe_gives_the_same_report(piece: int) -> None:
    for data in (BODY, http_request(BODY, f"Content-Length: {len(BODY)}"), BODY[:-1], BODY[:-1] + b"\7"):
        report, piped = inspected(data), examine(Bytes(data, piece=piece))
        assert piped.tensors == report.tensors or not report.is_valid
        assert piped.is_valid == report.is_valid
        assert replace(piped, nbytes=len(data)) == report or not report.is_valid


def test_a_response() -> None:
    body, length = response(y=np.ones(3))
    assert inspected(body).form == "response body"
    assert inspected(body, header_length=length).is_valid


def test_tensors_in_the_header() -> None:
    arrays = {"x": np.arange(4), "s": np.array([b"a", b"bcd"], object)}
    tensors = [Tensor(name=name, array=array, is_binary=False) for name, array in arrays.items()]
    body = b"".join(encode_request(tensors).buffers)
    x, s = inspected(body).tensors
    assert (x.offset, x.alignment, x.nbytes, x.first_values) == (None, None, 0, ("0", "1", "2", "3"))
    assert s.first_values == ("b'a'", "b'bcd'")
    assert s.statistics is not None
    assert (s.statistics.minimum, s.statistics.maximum) == (1, 3)


def test_strings() -> None:
    (tensor,) = inspected(request(s=np.array([b"a" * 100, b"", b"xyz"], object))[0]).tensors
    assert tensor.statistics is not None
    assert (tensor.statistics.count, tensor.statistics.minimum, tensor.statistics.maximum) == (3, 0, 100)
    assert max(map(len, tensor.first_values)) < 50


def test_files_of_arrays() -> None:
    arrays = {"a": np.arange(7, dtype="<i2"), "image": IMAGE}
    report = inspected(b"".join(safetensors.encode(arrays).buffers))
    assert (report.form, report.is_valid) == ("safetensors", True)
    assert {each.name: each.shape for each in report.tensors} == {"a": (7,), "image": (5, 4, 3)}
    assert report.segments[0].name == "length of the header"
    report = inspected(b"".join(npy.encode(IMAGE).buffers))
    assert (report.form, report.is_valid) == ("npy", True)
    assert report.header is not None
    assert report.header.text.startswith("{'descr': '|u1'")
    report = inspected(b"".join(npy.encode_archive(arrays).buffers))
    assert (report.form, report.is_valid) == ("npz", True)
    assert [each.name for each in report.tensors] == ["a", "image"]
    assert [each.nbytes for each in report.segments if each.kind == "tensor"] == [14, 60]
    assert sum(each.nbytes for each in report.segments) == report.nbytes


def test_fortran_order_has_no_picture() -> None:
    report = inspected(b"".join(npy.encode(np.asfortranarray(np.arange(36.0).reshape(6, 6))).buffers))
    assert report.is_valid
    assert report.tensors[0].picture is None


@pytest.mark.parametrize("kind", Kind)
def test_frames(kind: Kind) -> None:
    message = encode_request({"x": np.ones(3)})
    frame = b"".join(encode_frame(message, Kind.REQUEST, checksum=Checksum.CRC32).buffers)
    report = inspected(frame)
    assert (report.form, report.is_valid) == ("frame", True)
    assert [each.name for each in report.segments] == ["frame head", "header", "x", "checksum"]
    assert report.tensors[0].offset == 24 + (message.header_length or 0)
    report = inspected(frame + frame)
    assert report.is_valid
    assert "follow the message" in report.notes[0]
    report = inspected(frame[:9] + bytes([kind + 1]) + frame[10:])
    assert report.failure is not None
    assert report.failure.code == "invalid-frame"


# HTTP


def test_http() -> None:
    data = http_request(BODY, f"Content-Length: {len(BODY)}", f"Inference-Header-Content-Length: {LENGTH}")
    report = inspected(data)
    assert (report.form, report.is_valid) == ("HTTP request", True)
    assert report.head is not None
    assert report.head.start_line == "POST /v2/models/m/infer HTTP/1.1"
    assert report.head.fields[0] == ("Host", "x")
    assert report.segments[0].nbytes == report.head.nbytes == len(data) - len(BODY)
    assert report.tensors[0].offset == LENGTH
    report = inspected(data + b"GET ")
    assert report.is_valid
    assert report.notes == ("4 bytes follow the message, such as the next one; only the first message is inspected",)


def test_compressed_and_chunked() -> None:
    packed = gzip.compress(BODY)
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    fields = ("Transfer-Encoding: chunked", "Content-Encoding: gzip", f"Inference-Header-Content-Length: {LENGTH}")
    report = inspected(http_request(chunks, *fields))
    assert report.is_valid, report.failure
    assert "chunked and compressed (gzip)" in report.notes[0]
    assert report.tensors == inspected(BODY).tensors


def test_a_response_after_interim_responses() -> None:
    body, length = response(y=np.arange(3.0))
    fields = f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: {length}\r\n"
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    data = interim + f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + body
    report = inspected(data)
    assert report.is_valid, report.failure
    assert report.head is not None
    assert report.head.start_line == "HTTP/1.1 200 OK"
    assert sum(each.nbytes for each in report.segments) == len(data)


def test_bodies_that_are_no_inference() -> None:
    for data in (
        b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n",
        b'HTTP/1.1 400 Bad Request\r\nContent-Length: 13\r\n\r\n{"error":"x"}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"name":"t"}',
    ):
        report = inspected(data)
        assert report.is_valid, report.failure
        assert report.notes == ("the body is no inference message; it is shown and not checked",)


def test_a_body_that_comes_in_its_own_memory() -> None:
    """A body that is larger than what comes with the head is read into the window, and the tape still has its end."""
    body, length = request(x=np.zeros(1 << 18), y=np.array([True] * 9))
    fields = (f"Content-Length: {len(body)}", f"Inference-Header-Content-Length: {length}")
    for piece in (None, 1000):
        report = examine(Bytes(http_request(body[:-1] + b"\7", *fields), piece=piece))
        assert report.failure is not None
        assert report.failure.offset == len(body) - 1
        assert _marked(report) == b"\7"


@pytest.mark.parametrize("header_length", [0, 1])
def test_a_raw_body(header_length: int) -> None:
    if header_length:
        assert not inspected(b"12", header_length=header_length).is_valid
        return
    assert inspected(b"12", header_length=0).tensors[0].nbytes == 2
    with pytest.raises(LocalProtocolError):
        examine(Bytes(b"12", piece=1), header_length=0)


@pytest.mark.parametrize("key", ["a.b", "a['b']", "'", '"', "\\x", "['\\x']", "\\", "\x1b", "é", "\ud800", "n" * 500])
def test_odd_names_of_members(key: str) -> None:
    inner = f"{json.dumps(key)}:1"
    report = inspected(f'{{"inputs":[],"parameters":{{{inner},{inner}}}}}'.encode())
    assert report.failure is not None
    assert report.failure.view is not None


@pytest.mark.parametrize("depth", [100, 900, 5000])
def test_deep_headers(depth: int) -> None:
    report = inspected(b'{"inputs":' + b"[" * depth + b"]" * depth + b"}")
    assert not report.is_valid
    assert report.header is not None
    assert len(report.header.text) < 300 * depth, "indentation is bounded"


@pytest.mark.slow
def test_texts_take_linear_time() -> None:
    """Texts that would make a search go back and forth, were it not written with care."""
    for part in (b"[1,", b'"\\', b'{"a":[', b"[\n  ", b" ", b"1", b"\\"):
        for start in (b'{"inputs":', b'{"inputs":["', b""):
            text = start + part * (60_000 // len(part))
            assert least_cpu_seconds(partial(inspected, text), enough=0.5) < 0.5


def test_a_raw_request() -> None:
    data = http_request(b"\1\2\3", "Content-Length: 3", "Inference-Header-Content-Length: 0")
    report = inspected(data)
    assert report.is_valid
    assert (report.tensors[0].name, report.tensors[0].first_values) == ("(raw)", ("1", "2", "3"))


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_captures(capture: Capture) -> None:
    """Requests are judged as the tests of the codec judge them, and all responses of servers are valid."""
    report = inspected(capture.request)
    is_refused = capture.refusal is not None and capture.refusal.layer is not Layer.SERVICE
    assert report.is_valid is not is_refused, report.failure
    if capture.expected_request is not None:
        found = [(each.name, each.datatype, each.shape) for each in report.tensors]
        assert found == [(each.name, each.datatype, each.shape) for each in capture.expected_request]
    report = inspected(capture.response)
    assert (report.form, report.is_valid) == ("HTTP response", True)
    if capture.expected_response is not None:
        assert len(report.tensors) == len(capture.expected_response)


# What is wrong, and where


def test_the_wrong_byte_of_a_tensor() -> None:
    report = inspected(BODY[:-2] + b"\7\1")
    assert report.failure is not None
    assert (report.failure.code, report.failure.offset) == ("invalid-bool", len(BODY) - 2)
    assert _marked(report) == b"\7\1"
    assert report.tensors[0].statistics is not None


def test_the_member_of_the_header() -> None:
    wrong = BODY.replace(b"[2,3]", b"[2,-3]").replace(b"[2, 3]", b"[2, -3]")
    assert wrong != BODY
    report = inspected(wrong)
    assert report.failure is not None
    assert (report.failure.code, report.failure.path) == ("invalid-shape", "$.inputs[0].shape[1]")
    assert _marked(report).startswith(b"-3]")


@pytest.mark.parametrize("cut", [1, 10])
def test_a_body_that_ends_too_early(cut: int) -> None:
    report = inspected(BODY[:-cut], header_length=LENGTH)
    assert report.failure is not None
    assert (report.failure.code, report.failure.offset) == ("body-length-mismatch", len(BODY) - cut)
    assert _marked(report) == b""
    assert [each.name for each in report.tensors] == ["x", "flags"], "the header is valid, so its tensors are listed"
    assert report.tensors[0].statistics is None
    piped = examine(Bytes(BODY[:-cut], piece=5), header_length=LENGTH)
    assert piped.failure is not None
    assert (piped.failure.code, piped.failure.offset) == ("truncated", len(BODY) - cut)


def test_bytes_after_the_message() -> None:
    report = inspected(BODY + b"!?", header_length=LENGTH)
    assert report.failure is not None
    assert (report.failure.code, report.failure.offset) == ("body-length-mismatch", len(BODY))
    assert _marked(report) == b"!?"
    for data in (BODY, b"".join(npy.encode(IMAGE).buffers), b"".join(safetensors.encode({"a": IMAGE}).buffers)):
        piped = examine(Bytes(data + b"!?", piece=11))
        assert piped.failure is not None
        assert (piped.failure.code, piped.failure.offset) == ("trailing-bytes", len(data))


def test_a_place_far_from_what_was_read() -> None:
    large, length = request(x=np.zeros(1 << 20), y=np.zeros(3))
    report = inspected(large + b"end", header_length=length)
    assert _marked(report) == b"end"
    data = http_request(
        large + b"end", f"Content-Length: {len(large) + 3}", f"Inference-Header-Content-Length: {length}"
    )
    assert _marked(inspected(data)) == b"end"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty-body"),
        (b"hello", "invalid-header"),
        (b'{"inputs": [', "invalid-json"),
        (b"GET / HTTP/1.1\r\n\r\n", "invalid-http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{", "truncated"),
        (b"\x93NUMPY\1\0\xff\xff", "invalid-header-length"),
        (b"PK\3\4", "truncated"),
        (b"\x89V2F", "truncated"),
        (b"\2\0\0\0\0\0\0\0{]", "invalid-json"),
    ],
)
def test_what_is_no_message(data: bytes, code: str) -> None:
    for source in (Bytes(data), Bytes(data, piece=1)):
        report = examine(source)
        assert report.failure is not None
        assert report.failure.code == code


def test_any_bytes_give_a_report() -> None:
    random = Random(1)  # noqa: S311 - the same messages each time
    whole = http_request(BODY, f"Content-Length: {len(BODY)}", f"Inference-Header-Content-Length: {LENGTH}")
    files = [
        BODY,
        whole,
        *(b"".join(encode({"a": IMAGE}).buffers) for encode in (safetensors.encode, npy.encode_archive)),
    ]
    for _ in range(60):
        data = bytearray(random.choice(files))
        for _ in range(random.choice([1, 3])):
            data[random.randrange(len(data))] = random.randrange(256)
        examine(Bytes(bytes(data[: random.choice([len(data), random.randrange(len(data))])])))


@pytest.mark.slow
@settings(max_examples=examples(200), derandomize=True)
@given(mutated_messages())
def test_every_class_of_wrong_messages(message: ExpectedMessage) -> None:
    form = Form.RESPONSE if message.is_response else Form.REQUEST
    if message.header_length in {None, 0}:  # other lengths could be meant; a report must come in any case
        examine(Bytes(message.body), form=form)
        return
    report = examine(Bytes(message.body), form=form, header_length=message.header_length)
    if message.refusals:
        assert report.failure is not None
        # The mutation of a declared length of the body cannot be seen in a file, whose length is what it is.
        assert report.failure.code in {*message.refusals, "body-length-mismatch", "header-exceeds-body"}
    if report.failure is not None and report.failure.path is not None:
        assert report.failure.view is not None


def test_forms_can_be_chosen() -> None:
    report = inspected(BODY, form=Form.SAFETENSORS)
    assert report.form == "safetensors"
    assert not report.is_valid


# Memory and pictures


def test_a_row_may_be_larger_than_the_window() -> None:
    values = np.arange(3 << 18, dtype="<f8")
    (x,) = inspected(request(x=values[None])[0]).tensors
    assert x.statistics is not None
    assert (x.statistics.count, x.statistics.maximum) == (values.size, values[-1])
    assert x.statistics.mean == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (IMAGE, (4, 5, 3)),
        (IMAGE.transpose(2, 0, 1), (4, 5, 3)),
        (IMAGE[None, :, :, :1], (4, 5, 1)),
        (np.arange(25.0).reshape(5, 5), (5, 5, 1)),
        (np.zeros((2000, 1000), np.uint8), (48, 96, 1)),
    ],
)
def test_pictures(array: np.ndarray[Any, Any], size: tuple[int, int, int]) -> None:
    picture = inspected(request(x=array)[0]).tensors[0].picture
    assert picture is not None
    assert (picture.width, picture.height, picture.channels) == size
    assert len(picture.data) == picture.width * picture.height * picture.channels
    if array.dtype == np.uint8 and size[2] == 3:
        assert picture.data == IMAGE.tobytes()


def test_levels_of_floats() -> None:
    array = np.linspace(-1, 1, 16).reshape(4, 4)
    array[0, 1] = np.nan
    picture = inspected(request(x=array)[0]).tensors[0].picture
    assert picture is not None
    assert (picture.data[0], picture.data[1], picture.data[-1]) == (0, 0, 255)


@pytest.mark.parametrize("shape", [(100,), (3, 3), (5, 5, 5), (2, 5, 5, 3), ()])
def test_what_is_no_image(shape: tuple[int, ...]) -> None:
    assert inspected(request(x=np.zeros(shape))[0]).tensors[0].picture is None


def test_pictures_are_few() -> None:
    body, _ = request(**{f"x{index}": np.zeros((4, 4), np.uint8) for index in range(40)})
    assert sum(each.picture is not None for each in inspected(body).tensors) == 16
