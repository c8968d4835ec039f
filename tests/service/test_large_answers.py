"""Large answers as JSON: made while they are sent, of a length that is known before, compressed in little memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import Elements, Rows
from streamcodec.service import InferenceRequest, ResolvedHead, Service
from streamcodec.transports.sockets.vectors import batches
from tests.service.requests import Array, ask, head, run, service_of

ZEROS = np.zeros(100_000, np.int16)
NOISE = np.random.default_rng(3).integers(-(2**60), 2**60, 200_000)
GZIP = [("Accept-Encoding", "gzip")]


def _serving(array: Array | Elements | Rows, *, compresses: bool = False) -> Service:
    def predict(_: InferenceRequest) -> Mapping[str, npt.ArrayLike | Elements | Rows]:
        return {"y": array}

    return service_of(predict, compresses=compresses)


@pytest.mark.parametrize("array", [ZEROS, NOISE, NOISE.astype(np.float32), Elements([b"word"] * 20_000)])
def test_answer_is_right_and_as_long_as_it_says(array: Array | Elements) -> None:
    answer = ask(_serving(array))
    assert int(answer.fields["Content-Length"]) == len(answer.body)
    assert np.array_equal(answer.outputs["y"], np.asarray(array))


def test_rows_of_a_model_are_collected_and_their_text_is_not() -> None:
    rows = Rows("INT16", ZEROS.shape, [ZEROS[:10], ZEROS[10:]])
    assert np.array_equal(ask(_serving(rows)).outputs["y"], ZEROS)


def test_what_json_cannot_say_is_refused_in_the_first_pass() -> None:
    words = np.array([b"word"] * 20_000 + [b"\xff"], object)
    answer = ask(_serving(words))
    assert (answer.status, answer.error) == (
        400,
        "tensor 'y': a BYTES element is not UTF-8, which JSON needs; use the binary form",
    )


def test_compressed_if_that_takes_little_memory() -> None:
    answer = ask(_serving(ZEROS, compresses=True), fields=GZIP)
    assert answer.fields["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["outputs"][0]["data"] == ZEROS.tolist()
    answer = ask(_serving(NOISE, compresses=True), fields=GZIP)
    assert "Content-Encoding" not in answer.fields
    assert np.array_equal(answer.outputs["y"], NOISE)


@pytest.mark.parametrize("compresses", [True, False])
def test_memory_for_an_answer_is_constant(compresses: bool) -> None:
    array = np.random.default_rng(4).integers(-128, 128, 4 << 20, np.int8)
    service = _serving(array, compresses=compresses)
    body = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}'
    resolved = service.open(head("/v2/models/m/infer", "POST", GZIP, len(body)))
    assert isinstance(resolved, ResolvedHead)
    tracemalloc.start()
    reply = run(resolved.begin(), body)
    nbytes = sum(len(view) for batch in batches(reply.buffers) for view in batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert nbytes == reply.body_length > 12 << 20
    assert peak < 4 << 20
