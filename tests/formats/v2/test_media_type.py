"""The header's length in the media type: what is read, what is refused, and what is written."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from streamcodec import (
    HEADER_LENGTH_FIELD,
    SAGEMAKER_MEDIA_TYPE,
    VERTEX_AI_MEDIA_TYPE,
    ErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    Tensor,
    compress_message,
    encode_raw_request,
    encode_request,
    parse_header_length,
    parse_media_type,
)
from tests.cputime import least_cpu_seconds

MEDIA_TYPES = pytest.mark.parametrize("media_type", [SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE])

ACCEPTED: Final = [
    ("%s;json-header-size=128", 128),
    ("%s;json-header-size=0", 0),
    ("%s;json-header-size=007", 7),
    ("%s;json-header-size=9223372036854775807", 9223372036854775807),
    ("%s;json-header-size=" + "9" * 19, 10**19 - 1),
    ("%s; json-header-size=128", 128),
    ("%s \t;\t json-header-size=128", 128),
    ("%s;JSON-Header-Size=128", 128),
    ('%s;json-header-size="128"', 128),
    (r'%s;json-header-size="1\2\8"', 128),
    ("%s;charset=utf-8;json-header-size=128", 128),
    ("%s;json-header-size=128;charset=utf-8", 128),
    ('%s;a="; json-header-size=1";json-header-size=128', 128),
    (r'%s;a="\"; json-header-size=1";json-header-size=128', 128),
    ('%s;a="";json-header-size=128', 128),
    ('%s;a="\xe4";json-header-size=128', 128),
    ("%s;;json-header-size=128; ;", 128),
]
"""Values of `Content-Type` for a media type, and the length that they say."""

REFUSED: Final = [
    "%s",
    "%s;",
    "%s;charset=utf-8",
    "%s;json-header-size",
    "%s;json-header-size=",
    '%s;json-header-size=""',
    "%s;json-header-size=+5",
    "%s;json-header-size=-5",
    "%s;json-header-size=5.0",
    "%s;json-header-size=1e3",
    "%s;json-header-size=0x10",
    "%s;json-header-size=1_000",
    "%s;json-header-size=5a",
    "%s;json-header-size=a5",
    "%s;json-header-size=5 6",
    "%s;json-header-size=5,6",
    "%s;json-header-size=5, %s;json-header-size=5",
    "%s;json-header-size=\xb2",
    '%s;json-header-size="\xb2"',
    '%s;json-header-size=" 5"',
    '%s;json-header-size="5 "',
    '%s;json-header-size="5',
    '%s;json-header-size="5\\"',
    '%s;json-header-size="5"6',
    '%s;json-header-size="\n5"',
    "%s;json-header-size='5'",
    "%s;json-header-size =5",
    "%s;json-header-size= 5",
    "%s;json-header-size=5 charset=utf-8",
    "%s;json-header-size=5;json-header-size=5",
    "%s;json-header-size=5;JSON-HEADER-SIZE=6",
    "%s;json-header-size=" + "1" * 20,
    "%s;json-header-size=" + "1" * 60_000,
    "%s;json-header-size*=utf-8''5",
    "%s;=5;json-header-size=5",
    "%s json-header-size=5",
    "%s,json-header-size=5",
    "%s/x;json-header-size=5",
    " %s;json-header-size=5",
    "text/plain, %s;json-header-size=5",
    "application/%s;json-header-size=5",
    'multipart/related;type="%s;json-header-size=5"',
]
"""Values of `Content-Type` that have the name of a media type, and are refused."""

OTHERS: Final = [
    b"",
    b"application/json",
    b"application/octet-stream;json-header-size=5",
    b"application/json;json-header-size=x",
    b"application/vnd.sagemaker-triton.binary+json2;json-header-size=5",
    b"xapplication/vnd.sagemaker-triton.binary+json;json-header-size=5",
    b"application/vnd.other-triton.binary+json;json-header-size=5",
    b"application/vnd.sagemaker-triton.binary;json-header-size=5",
    b"\xff;;=",
]
"""Values that mean nothing here, as ever."""


@MEDIA_TYPES
@pytest.mark.parametrize(("value", "length"), ACCEPTED)
@pytest.mark.parametrize("case", [str, str.upper, str.title])
def test_the_parameter_is_read(media_type: str, value: str, length: int, case: type[str]) -> None:
    content_types = [value.replace("%s", case(media_type)).encode("latin-1")]
    assert parse_media_type(content_types) == (media_type, length)
    assert parse_header_length([], content_types) == length


@MEDIA_TYPES
@pytest.mark.parametrize("value", REFUSED)
def test_what_is_not_exactly_that_is_refused_and_never_read_as_something_else(media_type: str, value: str) -> None:
    content_types = [value.replace("%s", media_type).encode("latin-1")]
    for fields in ([], [b"5"]):
        with pytest.raises(RemoteProtocolError) as caught:
            parse_header_length(fields, content_types)
        assert caught.value.code is ErrorCode.INVALID_HEADER_LENGTH
        assert caught.value.status_hint == 400
        assert len(str(caught.value)) < 200


def test_that_parameters_are_not_well_formed_is_told() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_media_type([f"{SAGEMAKER_MEDIA_TYPE};;=".encode()])
    assert caught.value.message == "the parameters of Content-Type are not well formed"


@MEDIA_TYPES
def test_at_most_32_parameters_are_read(media_type: str) -> None:
    value = f"{media_type};json-header-size=5" + ";a=b" * 31
    assert parse_media_type([value.encode()]) == (media_type, 5)
    with pytest.raises(RemoteProtocolError) as caught:
        parse_media_type([f"{value};a=b".encode()])
    assert caught.value.message == "Content-Type has more than 32 parameters"


@pytest.mark.parametrize("value", OTHERS)
def test_other_media_types_are_left_alone(value: bytes) -> None:
    for content_types in ([value], [value, value]):
        assert parse_media_type(content_types) is None
        assert parse_header_length([], content_types) is None
        assert parse_header_length([b"7"], content_types) == 7


@MEDIA_TYPES
def test_the_field_and_the_parameter_say_the_same(media_type: str) -> None:
    content_types = [f"{media_type};json-header-size=128".encode()]
    assert parse_header_length([b"128"], content_types) == 128
    assert parse_header_length([b"0128"], content_types) == 128
    for other in ([b"127"], [b"0"], [b"128", b"128"], [b""], [b"x"]):
        with pytest.raises(RemoteProtocolError) as caught:
            parse_header_length(other, content_types)
        assert caught.value.code is ErrorCode.INVALID_HEADER_LENGTH


@pytest.mark.parametrize("other", [b"application/json", b"", f"{SAGEMAKER_MEDIA_TYPE};json-header-size=5".encode()])
def test_a_second_content_type_is_refused(other: bytes) -> None:
    value = f"{SAGEMAKER_MEDIA_TYPE};json-header-size=5".encode()
    for content_types in ([value, other], [other, value]):
        with pytest.raises(RemoteProtocolError, match="Content-Type occurs 2 times"):
            parse_media_type(content_types)


@MEDIA_TYPES
def test_headers_with_the_length_in_the_media_type(media_type: str) -> None:
    message = encode_request([Tensor(name="x", array=np.arange(3))])
    fields = message.headers_with(media_type)
    assert fields == [
        ("Content-Type", f"{media_type};json-header-size={message.header_length}"),
        ("Content-Length", str(message.body_length)),
    ]
    assert parse_header_length([], [fields[0][1].encode()]) == message.header_length
    assert (HEADER_LENGTH_FIELD, str(message.header_length)) in message.headers


@MEDIA_TYPES
def test_headers_of_other_messages(media_type: str) -> None:
    text = encode_request([Tensor(name="x", array=np.arange(3), is_binary=False)])
    assert text.headers_with(media_type) == text.headers
    raw = encode_raw_request(np.arange(3))
    assert raw.headers_with(media_type)[0] == ("Content-Type", f"{media_type};json-header-size=0")
    packed = compress_message(encode_request([Tensor(name="x", array=np.zeros(999))]), "gzip")
    assert ("Content-Encoding", "gzip") in packed.headers_with(media_type)


@pytest.mark.parametrize(
    "media_type", ["application/json", "", SAGEMAKER_MEDIA_TYPE.upper(), SAGEMAKER_MEDIA_TYPE + ";"]
)
def test_headers_with_another_media_type(media_type: str) -> None:
    with pytest.raises(LocalProtocolError, match="the media types with the header's length are"):
        encode_request({"x": np.arange(3)}).headers_with(media_type)


HOSTILE: Final = {
    "blanks": (b"", b" ", b""),
    "blanks in front": (b"", b" ", b";"),
    "empty parameters": (b"", b";", b"="),
    "a token": (b";", b"a", b""),
    "a value": (b";a=", b"a", b'"'),
    "a quoted string": (b';a="', b"a", b""),
    "escapes": (b';a="', b"\\\\", b""),
    "parameters": (b"", b";a=b", b"="),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_parameters_take_linear_time(name: str) -> None:
    """As many as a head may have take milliseconds; to try each place from each other one would take minutes."""
    start, unit, end = HOSTILE[name]
    value = SAGEMAKER_MEDIA_TYPE.encode() + start + unit * (60_000 // len(unit)) + end

    def parse() -> None:
        with pytest.raises(RemoteProtocolError):
            parse_media_type([value])

    assert least_cpu_seconds(parse, enough=1) < 1
