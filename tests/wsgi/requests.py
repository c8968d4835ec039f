"""Requests: what a WSGI server would hand over, without a server."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from streamcodec import EncodedMessage, Tensor, encode_request
from streamcodec.service import Model, ModelRegistry, Predict, Service
from streamcodec.wsgi import App
from streamcodec.wsgi.reading import Environ
from tests.service.requests import Answer

Array = np.ndarray[Any, Any]


class Pieces:
    """A stream without `readinto`, as most servers have it."""

    def __init__(self, data: bytes, most: int | None = None) -> None:
        self._data = io.BytesIO(data)
        self._most = most
        self.reads: list[int] = []

    def read(self, size: int, /) -> bytes:
        self.reads.append(size)
        return self._data.read(size if self._most is None else min(size, self._most))


def message_of(x: Array, **options: Any) -> EncodedMessage:  # noqa: ANN401 - those of encode_request
    return encode_request([Tensor(name="x", array=x)], **options)


def body_of(message: EncodedMessage) -> bytes:
    return b"".join(cast("tuple[bytes, ...]", message.buffers))


def environ_of(
    message: EncodedMessage,
    path: str = "/v2/models/m/infer",
    stream: object = None,
    **variables: Any,  # noqa: ANN401 - any that a server may set
) -> Environ:
    """Return the environment of an inference request; a variable that is None is left out."""
    body = body_of(message)
    environ: Environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_HOST": "x",
        "wsgi.input": Pieces(body) if stream is None else stream,
    }
    for name, value in message.headers:
        environ.setdefault("HTTP_" + name.upper().replace("-", "_"), value)
    environ |= variables
    return {name: value for name, value in environ.items() if value is not None}


@dataclass(kw_only=True)
class Begun:
    """An answer that has begun."""

    status: int
    fields: Mapping[str, str]
    body: Any

    def finish(self) -> Answer:
        """Take all of it, as a server does."""
        try:
            body = b"".join(self.body)
        finally:
            self.close()
        return Answer(status=self.status, fields=self.fields, body=body, cause=None)

    def close(self) -> None:
        if hasattr(self.body, "close"):
            self.body.close()


def begin(app: App, environ: Environ) -> Begun:
    """Have a request answered, as far as the first byte of the body."""
    started: list[tuple[int, dict[str, str]]] = []

    def start_response(status: str, headers: Iterable[tuple[str, str]]) -> Any:  # noqa: ANN401 - is not called
        started.append((int(status.split(maxsplit=1)[0]), dict(headers)))

    body = app(environ, start_response)
    ((status, fields),) = started
    return Begun(status=status, fields=fields, body=body)


def ask(app: App, environ: Environ) -> Answer:
    """Have a request answered."""
    return begin(app, environ).finish()


def service_of(predict: Predict, **options: Any) -> Service:  # noqa: ANN401 - those of Model
    """Serve one model `m`."""
    return Service(ModelRegistry.of([Model(name="m", predict=predict, **options)]))
