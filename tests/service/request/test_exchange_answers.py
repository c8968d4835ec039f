"""Answers of an exchange: each is finished as one of the service, whoever has decided on it, and however early."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.service import Model, ModelRegistry, Reply, Service
from streamcodec.service.memory.budget import Budget
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from tests.service.request.test_exchange import Owner, service_of
from tests.service.requests import answer, head

PAGE = ("Origin", "https://page.example")


def _open_to_a_page() -> Owner:
    models = ModelRegistry.of([Model(name="m", predict=lambda request: dict(request.inputs))])
    return Owner(Service(models, cors_origins=["https://page.example"]))


ANSWERED: dict[str, Callable[[Exchange], ExchangeStep]] = {
    "by its head": lambda exchange: exchange.begin(head("/v2", fields=[PAGE])),
    "by its owner": lambda exchange: exchange.refuse(head("/v2", fields=[PAGE]), Reply(status=503)),
}


@pytest.mark.parametrize("way", ANSWERED)
def test_a_page_may_read_each_answer(way: str) -> None:
    exchange = _open_to_a_page().exchange
    assert ANSWERED[way](exchange) is ExchangeStep.ANSWER
    assert dict(exchange.reply.headers)["Access-Control-Allow-Origin"] == PAGE[1]


def test_a_page_may_read_why_its_body_is_refused() -> None:
    exchange = _open_to_a_page().exchange
    assert exchange.begin(head("/v2/models/m/infer", "POST", [PAGE], 10)) is ExchangeStep.RECEIVE
    exchange.fail(RemoteProtocolError("no", code=ErrorCode.INVALID_JSON))
    assert dict(exchange.reply.headers)["Access-Control-Allow-Origin"] == PAGE[1]


def test_an_exchange_knows_whether_there_is_an_answer() -> None:
    owner = Owner(service_of())
    told = [owner.exchange.is_answered]
    owner.begin()
    told.append(owner.exchange.is_answered)
    owner.bring()
    owner.call()
    told.append(owner.exchange.is_answered)
    owner.exchange.end()
    assert [*told, owner.exchange.is_answered] == [False, False, True, False]


def test_what_no_answer_can_have_is_not_sent() -> None:
    exchange = Owner(service_of()).exchange
    exchange.refuse(head("/v2"), Reply(status=204, buffers=(b"text",), body_length=4))
    assert (exchange.reply.status, exchange.reply.buffers, exchange.reply.body_length) == (204, (), 0)
    exchange.end()
    exchange.refuse(head("/v2"), Reply(status=99))
    assert exchange.reply.status == 500
    assert isinstance(exchange.reply.cause, LocalProtocolError)
    assert answer(exchange.reply).error == str(exchange.reply.cause)


def test_who_is_refused_for_want_of_memory_is_told_why_and_when_to_come_again() -> None:
    exchange = Owner(service_of(), Budget(1000)).exchange
    exchange.refuse_for_memory()
    refused = answer(exchange.reply)
    assert (refused.status, refused.fields["Retry-After"]) == (503, "1")
    assert refused.error == "other requests use all of the server's memory"
