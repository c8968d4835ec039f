"""The header's length in the media type: read by both connections as the field is, however the bytes are cut."""

from __future__ import annotations

from functools import partial

import pytest

from streamcodec import SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE, ErrorCode
from streamcodec.formats.v2.fields import header_form_of, header_length_of
from streamcodec.http import Fields
from tests.http.driver import client, refuses, server, triad
from tests.http.messages import BODY, IHCL, REQUEST, RESPONSE, body_of, framed, response


def content_type(media_type: str, length: int | None, suffix: str = "") -> bytes:
    return f"Content-Type: {media_type}; json-header-size={length}{suffix}".encode()


@pytest.mark.parametrize("media_type", [SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE])
@pytest.mark.parametrize("sizes", [None, [50]], ids=["length", "chunks"])
def test_a_request(media_type: str, sizes: list[int] | None) -> None:
    wanted = triad(server, framed(BODY, IHCL, sizes=sizes), cuts=[1]).log
    found = triad(server, framed(BODY, content_type(media_type, REQUEST.header_length), sizes=sizes)).log
    assert [entry for entry in found if entry[0] != "head"] == [entry for entry in wanted if entry[0] != "head"]


@pytest.mark.parametrize("media_type", [SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE])
def test_an_answer(media_type: str) -> None:
    driver = triad(client, response(body_of(RESPONSE), content_type(media_type, RESPONSE.header_length)))
    assert [entry[0] for entry in driver.log] == ["head", "header", "tensor", "end"]


@pytest.mark.parametrize("start", [server, partial(client)], ids=["request", "answer"])
def test_a_malformed_one_is_refused(start: type[server]) -> None:  # type: ignore[valid-type] # either function
    make = framed if start is server else response
    driver = triad(start, make(BODY, content_type(SAGEMAKER_MEDIA_TYPE, 5, ".0")))
    assert refuses(driver, code=ErrorCode.INVALID_HEADER_LENGTH, status=400)


def test_fields_know_the_media_type() -> None:
    value = SAGEMAKER_MEDIA_TYPE.upper().encode() + b";json-header-size=5"
    fields = Fields(((b"content-type", value),))
    assert (header_form_of(fields), header_length_of(fields)) == ((5, SAGEMAKER_MEDIA_TYPE), 5)
    fields = Fields(((b"content-type", b"application/json"), (b"inference-header-content-length", b"7")))
    assert (header_form_of(fields), header_length_of(fields)) == ((7, None), 7)
