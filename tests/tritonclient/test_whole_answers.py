"""Whole answers: what one read has brought gives the result, or the error, that its events give, in every cut."""

from __future__ import annotations

from typing import Any

import pytest

from streamcodec import MessageError
from streamcodec.client.raw import RawExchange
from streamcodec.http import ClientConnection
from streamcodec.testing import describe_array, describe_error
from streamcodec.tritonclient.http import InferenceServerException, InferResult
from streamcodec.tritonclient.http.result import LIMITS, Answer
from tests.client.answers.test_whole_answers import CASES, FIELDS, PLAIN
from tests.client.scripted import response

LONG = response(b'{"outputs":[' + b" " * (16 << 10) + b"]}")
ANSWERS = {name: answer for name, answer in CASES.items() if name != "a media type with another length"} | {
    "a long document": LONG,
    "a wrong size": PLAIN["one tensor"].replace(b'"shape":[16]', b'"shape":[15]'),
    "an unknown member": PLAIN["several"].replace(b'"model_name"', b'"model-name"'),
}


def _call(answer: bytes, first: int, *, as_whole: bool, has_tensors: bool) -> tuple[object, bool]:
    """Bring an answer in two pieces; return what it comes to, and whether it was taken as a whole."""
    connection, found = ClientConnection(LIMITS), Answer(has_tensors=has_tensors)
    exchange = RawExchange(
        "POST", "/", FIELDS, parts=(), limits=LIMITS, receive=found.receive, take=found.take_whole if as_whole else None
    )
    exchange.start(connection)
    was_whole = False
    try:
        for piece in (answer[:first], answer[first:]):
            connection.feed(piece)
            if not exchange.has_ended:
                was_whole = exchange.take_whole(connection)
        connection.receive_eof()
        while not exchange.has_ended:
            event = exchange.receive(connection, connection.next_event())  # type: ignore[arg-type]  # there is an end
            if event is not None:
                exchange.keep(event)
        found.take(exchange.events)
        result: Any = _told(found) if has_tensors else (found.status, found.text)
    except MessageError as error:
        return (describe_error(error), connection.incoming.received_copied), was_whole
    except InferenceServerException as error:
        return (error.status(), error.message(), connection.incoming.received_copied), was_whole
    except (AttributeError, LookupError, TypeError) as error:  # of a header that is no object of objects
        return repr(error), was_whole
    return (result, found.fields.items, connection.is_reusable, connection.incoming.received_copied), was_whole


def _told(answer: Answer) -> object:
    answer.check()
    result = InferResult(answer, verbose=False)
    names = [output["name"] for output in result.get_response().get("outputs", ())]
    arrays = [answer.tensor(name) for name in names]
    return result.get_response(), [None if array is None else describe_array(array) for array in arrays]


@pytest.mark.parametrize("has_tensors", [True, False], ids=["inference", "document"])
@pytest.mark.parametrize("case", ANSWERS)
def test_it_comes_to_the_same(case: str, has_tensors: bool) -> None:
    answer = ANSWERS[case]
    for first in {0, *range(0, len(answer), max(1, len(answer) // 30)), len(answer)}:
        expected, _ = _call(answer, first, as_whole=False, has_tensors=has_tensors)
        found, was_whole = _call(answer, first, as_whole=True, has_tensors=has_tensors)
        assert found == expected, first
        assert was_whole or case not in PLAIN
