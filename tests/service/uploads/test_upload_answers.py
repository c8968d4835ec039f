"""Answers to the requests of an upload: what a client is told, and finds in the fields, to go on rightly."""

from __future__ import annotations

import pytest

from streamcodec import EndOfMessage, ErrorCode
from streamcodec.service import Model
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.request.exchange import Exchange
from streamcodec.service.uploads.upload import UploadPart
from tests.service.requests import answer, head
from tests.service.uploads.test_uploads import (
    ANSWER,
    BODY,
    FIELDS,
    LAST,
    MORE,
    PART,
    RECEIVE,
    Site,
    Visit,
    interrupted,
    offset,
)


@pytest.mark.parametrize(("at", "nbytes", "status"), [(4999, 10, 409), (5000, len(BODY), 400)])
def test_who_goes_on_wrongly_is_told_where_the_upload_is(at: int, nbytes: int, status: int) -> None:
    site = Site()
    interrupted(site, 5000)
    visit = Visit(site)
    assert visit.append(at, nbytes) is ANSWER
    fields = visit.fields
    assert (visit.status, fields["Upload-Offset"], fields["Upload-Complete"]) == (status, "5000", "?0")
    assert fields["Upload-Length"] == str(len(BODY))
    assert visit.exchange.reply.refusal is not None, "for the log"
    assert visit.exchange.reply.refusal.code is ErrorCode.UPLOAD_MISMATCH


def test_the_state_of_an_upload_is_kept_by_no_cache() -> None:
    site = Site()
    interrupted(site, 5000)
    visit = Visit(site)
    visit.ask("HEAD", "/v2/uploads/0")
    assert (visit.fields["Cache-Control"], visit.fields["Upload-Length"]) == ("no-store", str(len(BODY)))


def test_other_methods_are_told_what_an_upload_answers() -> None:
    visit = Visit(Site())
    assert visit.ask("PUT", "/v2/uploads/0") is ANSWER
    assert (visit.status, visit.fields["Allow"]) == (405, "HEAD, PATCH, DELETE")


@pytest.mark.parametrize(
    ("fields", "length", "words"),
    [
        ([LAST], None, "an upload that can be resumed needs Content-Length, and cannot come in chunks"),
        ([MORE], 0, "an upload that comes in several pieces needs Upload-Length from the beginning"),
        ([LAST, ("Upload-Length", "5")], 10, "Upload-Length is 5, and the whole upload that comes here has 10 bytes"),
        ([MORE, ("Upload-Length", "5")], 10, "Upload-Length is 5, and 10 bytes come at once"),
        ([LAST, ("Content-Encoding", "gzip")], 10, "an upload that can be resumed cannot be compressed"),
    ],
)
def test_a_bad_beginning_is_refused_with_what_is_right(
    fields: list[tuple[str, str]], length: int | None, words: str
) -> None:
    visit = Visit(Site())
    assert visit.begin(*fields, length=length) is ANSWER
    assert answer(visit.exchange.reply).error == words


@pytest.mark.parametrize(
    ("fields", "length", "words"),
    [
        ([LAST], 1, "the media type of what is appended is application/partial-upload"),
        ([PART, LAST, ("Content-Encoding", "gzip")], 1, "a piece of an upload cannot be compressed"),
        ([PART], 1, "PATCH needs Upload-Offset, a number, and Upload-Complete, which is ?0 or ?1"),
        ([PART, LAST], None, "a piece of an upload needs Content-Length, and cannot come in chunks"),
    ],
)
def test_a_bad_piece_is_refused_with_what_is_right(
    fields: list[tuple[str, str]], length: int | None, words: str
) -> None:
    visit = Visit(Site())
    visit.ask("PATCH", "/v2/uploads/0", ("Upload-Offset", "0"), *fields, length=length)
    assert answer(visit.exchange.reply).error == words


def test_who_asks_for_an_upload_that_is_not_there_is_told_what_to_do() -> None:
    visit = Visit(Site())
    visit.ask("HEAD", "/v2/uploads/7")
    refused = answer(visit.exchange.reply)
    assert refused.error == (
        "there is no such upload: it is complete, or was dropped, or has never begun; send the request again"
    )


def test_a_model_that_has_been_replaced_is_not_found() -> None:
    site = Site()
    interrupted(site, 5000)
    site.models.replace(Model(name="m", predict=site.model.predict))
    visit = Visit(site)
    visit.append(5000, len(BODY) - 5000)
    assert visit.exchange.reply.refusal is not None
    assert (visit.status, visit.exchange.reply.refusal.code) == (404, ErrorCode.NOT_FOUND)


@pytest.mark.parametrize(("now", "left"), [(500.0, 60), (590.0, 10), (700.0, 0)])
def test_no_more_time_is_promised_than_an_upload_has_in_all(now: float, left: int) -> None:
    site = Site()
    Visit(site).begin()
    site.now = now
    visit = Visit(site)
    visit.ask("HEAD", "/v2/uploads/0")
    assert visit.fields["Upload-Limit"].endswith(f", max-age={left}")


def test_an_upload_has_no_carrier_before_the_first_one_and_after_its_end() -> None:
    site = Site()
    request = head("/v2/models/m/infer", "POST", [*FIELDS, LAST, ("Host", "here")], len(BODY))
    part = site.decides.open(request)
    assert isinstance(part, UploadPart)
    carriers = [part.upload.carrier]
    assert offset(site) == 0
    visit = Visit(site)
    visit.append(0, len(BODY))
    carriers.append(part.upload.carrier)
    Visit(site).ask("DELETE", "/v2/uploads/0")
    assert [*carriers, part.upload.carrier] == [None, visit.exchange, None]


def test_an_exchange_whose_owner_wants_to_know_nothing_gives_way() -> None:
    site = Site()
    exchange = Exchange(site.service, Reservation(site.budget), site.decides)
    exchange.begin(head("/v2/models/m/infer", "POST", [*FIELDS, LAST, ("Host", "here")], len(BODY)))
    assert offset(site) == 0
    assert exchange.portion is None


def test_an_upload_whose_header_has_come_has_all_of_its_memory_when_it_goes_on() -> None:
    site = Site()
    interrupted(site, 5000)
    visit = Visit(site)
    assert visit.append(5000, len(BODY) - 5000) is RECEIVE
    assert not visit.exchange.is_held_up
    assert visit.exchange.inference is not None
    assert visit.exchange.reservation.nbytes == visit.exchange.inference.memory_bytes


def test_the_end_of_an_upload_is_that_of_all_its_messages() -> None:
    site = Site()
    visit = Visit(site)
    visit.begin(MORE, ("Upload-Length", str(len(BODY))), length=len(BODY))
    visit.bring(BODY)
    visit.exchange.end()
    visit = Visit(site)
    assert visit.append(len(BODY), 0) is RECEIVE
    assert visit.exchange.decoder.next_event() == EndOfMessage(nbytes=len(BODY))
