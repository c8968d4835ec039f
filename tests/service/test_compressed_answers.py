"""Compressed answers: only where the operator has switched them on, the client prefers them, and they are smaller."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import response_decoder
from streamcodec.service import InferenceRequest, Service
from tests.service.requests import Answer, Array, ask, get, service_of

VALUES = np.arange(1000, dtype="<i8")
GZIP = [("Accept-Encoding", "gzip")]
BINARY = {"binary_data_output": True}


def _identity(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
    return request.inputs


@pytest.fixture
def service() -> Service:
    return service_of(_identity, compresses=True)


def _is_plain(answer: Answer, x: Array) -> bool:
    return "Content-Encoding" not in answer.fields and np.array_equal(answer.outputs["x"], x)


@pytest.mark.parametrize(("encoding", "decompress"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
@pytest.mark.parametrize("parameters", [BINARY, None], ids=["binary", "JSON"])
def test_answer_is_the_plain_one_compressed(
    service: Service, encoding: str, decompress: Callable[[bytes], bytes], parameters: dict[str, bool] | None
) -> None:
    plain = ask(service, VALUES, parameters=parameters)
    compressed = ask(service, VALUES, [("Accept-Encoding", encoding)], parameters=parameters)
    assert decompress(compressed.body) == plain.body
    assert compressed.fields["Content-Encoding"] == encoding
    assert int(compressed.fields["Content-Length"]) == len(compressed.body) < len(plain.body)
    same = plain.fields.keys() - {"Content-Length"}
    assert {name: compressed.fields[name] for name in same} == {name: plain.fields[name] for name in same}


def test_header_length_counts_decompressed_bytes(service: Service) -> None:
    answer = ask(service, VALUES, GZIP, parameters=BINARY)
    body = gzip.decompress(answer.body)
    header_length = int(answer.fields["Inference-Header-Content-Length"])
    decoder = response_decoder(header_length=header_length, body_length=None)
    decoder.feed(body)
    decoder.next_event()
    assert body[header_length:] == VALUES.tobytes()


def test_nothing_is_compressed_unless_the_operator_wants_it() -> None:
    answer = ask(service_of(_identity), VALUES, GZIP, parameters=BINARY)
    assert _is_plain(answer, VALUES)
    assert "Vary" not in answer.fields


@pytest.mark.parametrize("fields", [[], [("Accept-Encoding", "*")], [("Accept-Encoding", "gzip;q=0")]])
def test_nothing_is_compressed_unless_the_client_wants_it(service: Service, fields: list[tuple[str, str]]) -> None:
    assert _is_plain(ask(service, VALUES, fields, parameters=BINARY), VALUES)


def test_several_fields_count_as_one(service: Service) -> None:
    fields = [("Accept-Encoding", "gzip;q=0.5"), ("Accept-Encoding", "deflate")]
    assert ask(service, VALUES, fields).fields["Content-Encoding"] == "deflate"


@pytest.mark.parametrize(("nbytes", "is_compressed"), [(831, False), (832, True)])
def test_small_answers_are_not_worth_it(service: Service, nbytes: int, is_compressed: bool) -> None:
    """The header is padded to 192 bytes, and the limit is at 1 KiB."""
    x = np.zeros(nbytes, np.uint8)
    assert len(ask(service, x, parameters=BINARY).body) == nbytes + 192
    answer = ask(service, x, GZIP, parameters=BINARY)
    assert ("Content-Encoding" in answer.fields) is is_compressed


def test_what_does_not_become_smaller_is_sent_as_it_is(service: Service) -> None:
    noise = np.frombuffer(np.random.default_rng(0).bytes(1 << 20), np.uint8)
    assert _is_plain(ask(service, noise, GZIP, parameters=BINARY), noise)


def test_errors_and_metadata_are_never_compressed(service: Service) -> None:
    for target in ("/v2", "/v2/models/m", "/v2/health/live", f"/v2/models/{'n' * 5000}", "/nothing"):
        answer = get(service, target, fields=GZIP)
        assert "Content-Encoding" not in answer.fields
        assert answer.document is not None

    def fail(_: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        raise ValueError("x" * 5000)

    answer = ask(service_of(fail, compresses=True), VALUES, GZIP)
    assert (answer.status, "Content-Encoding" in answer.fields) == (500, False)


def test_every_answer_says_that_it_depends_on_accept_encoding(service: Service) -> None:
    assert ask(service, VALUES).fields["Vary"] == "Accept-Encoding"
    assert ask(service, VALUES, GZIP).fields["Vary"] == "Accept-Encoding"
    assert get(service, "/nothing").fields["Vary"] == "Accept-Encoding"
