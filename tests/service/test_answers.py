"""Usual answers: written from templates, whose beginning is kept, with fields that are written already."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import Elements, RequestHeader
from streamcodec.http.writing import encoded_fields
from streamcodec.service.answers import NO_ANSWER, Answers, EndpointAnswers
from streamcodec.service.models.model import Outputs
from streamcodec.service.replies import Reply, WrittenFields

JSON, BINARY = (RequestHeader(tensors=(), parameters={"binary_data_output": is_binary}) for is_binary in (False, True))
USUAL: dict[str, Any] = {
    "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
    "rows with gaps": np.arange(6, dtype=np.int32)[::2],
    "texts": np.array([b"a", b"bc"], object),
    "elements": Elements([b"a", b"bc"]),
}


class _None(EndpointAnswers):
    """No other way."""

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        raise AssertionError((outputs, header))


def _answers(*, has_others: bool = True) -> Answers:
    return Answers(EndpointAnswers("m", "1") if has_others else _None("m", "1"), "m", "1")


@pytest.mark.parametrize("header", [JSON, BINARY], ids=["JSON", "binary"])
@pytest.mark.parametrize("kind", USUAL)
def test_a_usual_answer_is_written_here_with_its_fields(kind: str, header: RequestHeader) -> None:
    outputs = {"y": USUAL[kind]}
    reply, _ = _answers(has_others=False).reply(outputs, header, NO_ANSWER)
    wanted = EndpointAnswers("m", "1").reply(outputs, header)
    assert b"".join(map(bytes, reply.buffers)) == b"".join(map(bytes, wanted.buffers))  # type: ignore[arg-type] # no Rows
    assert [*reply.headers] == [*wanted.headers]
    assert isinstance(reply.headers, WrittenFields)
    assert reply.headers.lines == encoded_fields(reply.headers)
    assert reply.headers.has_length


def test_an_answer_of_the_same_form_has_the_same_beginning() -> None:
    answers = _answers()
    reply, last = answers.reply({"y": np.arange(3), "z": np.zeros(2, np.float32)}, BINARY, NO_ANSWER)
    again, same = answers.reply({"y": np.arange(5, 8), "z": np.ones(2, np.float32)}, BINARY, last)
    assert same is last
    assert again.buffers[0] is reply.buffers[0]
    assert b"".join(map(bytes, again.buffers[1:])) == np.arange(5, 8).tobytes() + np.ones(2, np.float32).tobytes()  # type: ignore[arg-type] # no Rows


@pytest.mark.parametrize("other", [{"y": np.arange(4)}, {"y": np.arange(3, dtype=np.int32)}, {"z": np.arange(3)}])
def test_an_answer_of_another_form_has_another_beginning(other: dict[str, Any]) -> None:
    answers = _answers()
    _, last = answers.reply({"y": np.arange(3)}, BINARY, NO_ANSWER)
    found, _ = answers.reply(other, BINARY, last)
    wanted = EndpointAnswers("m", "1").reply(other, BINARY)
    assert b"".join(map(bytes, found.buffers)) == b"".join(map(bytes, wanted.buffers))  # type: ignore[arg-type] # no Rows
