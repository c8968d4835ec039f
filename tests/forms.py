"""More attacks: those of `attacks` in every form that a body may have, refusals, answers in JSON, heads in small cuts.

They are judged by CPU time alone: what they aim at hides in a few calls, of `json`, of numpy, of `zlib`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    Limits,
    RemoteProtocolError,
    Tensor,
    compress_message,
    encode_response,
    request_decoder,
)
from streamcodec.http import ConnectionClosed, RequestHead, ServerConnection
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session
from streamcodec.service import Service, demo_models
from tests.attacks import ATTACKS, KIB, Attack, Decoding, pieces
from tests.hostile import TEXTS, Pair

_HEAD: Final = b"POST /v2/models/sink/infer HTTP/1.1\r\nHost: x\r\n"
_READ_BYTES: Final = 64 * KIB
_TEXT_BYTES: Final = 16 * KIB
"""Of a refused text, for each unit."""

Form = Callable[[bytes], bytes]
"""Makes a request of a body."""


def _plain(body: bytes) -> bytes:
    return _HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _chunked(body: bytes, size: int = _READ_BYTES) -> bytes:
    framed = b"".join(b"%x\r\n" % len(piece) + piece + b"\r\n" for piece in pieces(body, size))
    return _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def _packed(body: bytes) -> bytes:
    return _HEAD + b"Content-Encoding: gzip\r\n" + _plain(gzip.compress(body, mtime=0)).removeprefix(_HEAD)


FORMS: Final[dict[str, Form]] = {
    "plain": _plain,
    "chunked": _chunked,
    "in small chunks": partial(_chunked, size=100),
    "compressed": _packed,
}
"""By name."""


def receive(stream: bytes, header_length: int | None) -> RemoteProtocolError | None:
    """Have a server's connection decode a request; return why it was refused, if it was."""
    connection = ServerConnection()
    decoder = request_decoder(header_length=header_length, body_length=None, allow_headerless=True)
    try:
        for piece in pieces(stream, _READ_BYTES):
            left = piece
            while left:
                left = left[connection.feed(left) :]
                while (event := connection.next_event()) is not NEED_DATA:
                    if isinstance(event, RequestHead):
                        connection.receive_body(decoder)
                    elif isinstance(event, EndOfMessage | ConnectionClosed):
                        return None
    except RemoteProtocolError as error:
        return error
    return None


def _in_form(attack: Attack, form: Form) -> Attack:
    def make(scale: int) -> tuple[int, Callable[[], object]]:
        nbytes, act = attack(scale)
        assert isinstance(act, Decoding)
        return nbytes, partial(receive, form(act.data), act.header_length)

    return make


def _refusal(text: Callable[[int], Pair], form: Form, *, is_declared: bool) -> Attack:
    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = text(scale * _TEXT_BYTES).refused
        return len(data), partial(receive, form(data), len(data) if is_declared else None)

    return make


def _answer(array: Callable[[int], np.ndarray[Any, Any]], encoding: str | None = None) -> Attack:
    """An output of so many items that is asked for as JSON; its bytes are what is counted."""

    def make(scale: int) -> tuple[int, Callable[[], object]]:
        values = array(scale * 4 * KIB)

        def run() -> None:
            tensor = Tensor(name="x", array=values, is_binary=False)
            message = encode_response([tensor], model_name="m")
            if encoding is not None:
                message = compress_message(message, encoding)
            for _ in message.buffers:
                pass

        return values.nbytes, run

    return make


def _texts(count: int) -> np.ndarray[Any, Any]:
    texts = np.empty(count, object)
    texts[:] = [b'"\\\n' * 3] * count
    return texts


def _head_in_cuts(size: int) -> Attack:
    """One head, as long as it may be, that comes to the bundled server in small pieces."""

    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (KIB * scale)
        service = Service(demo_models(), limits=Limits(max_head_bytes=1 << 20))

        def run() -> None:
            session = Session(service, RequestCache(service), Admission(ServerOptions()))
            with suppress(RemoteProtocolError):
                for piece in pieces(data, size):
                    session.get_buffer()[: len(piece)] = piece
                    session.buffer_updated(len(piece))
                    session.next_event()

        return len(data), run

    return make


_BODIES: Final = [name for name, attack in ATTACKS.items() if isinstance(attack(1)[1], Decoding)]

IN_FORMS: Final[dict[str, Attack]] = {
    **{
        f"{name}, {word}": _in_form(ATTACKS[name], form)
        for name in _BODIES
        for word, form in FORMS.items()
        if word != "plain"
    },
    **{
        f"refused: {name}, {word}, {'declared' if is_declared else 'undeclared'}": _refusal(
            text, form, is_declared=is_declared
        )
        for name, text in TEXTS.items()
        for word, form in FORMS.items()
        for is_declared in (True, False)
    },
    "answer in JSON, integers": _answer(lambda count: np.zeros(count, np.int8)),
    "answer in JSON, booleans": _answer(lambda count: np.ones(count, np.bool_)),
    "answer in JSON, long floats": _answer(lambda count: np.full(count, 1 / 3)),
    "answer in JSON, NaN": _answer(lambda count: np.full(count, np.nan, np.float32)),
    "answer in JSON, escapes": _answer(_texts),
    "answer in JSON, compressed": _answer(lambda count: np.zeros(count, np.int8), "gzip"),
    "a head in single bytes": _head_in_cuts(1),
    "a head in cuts of 8": _head_in_cuts(8),
}
"""By name."""
