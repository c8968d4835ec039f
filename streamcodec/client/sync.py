"""Client: a blocking client of V2 servers."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamcodec.client.blocking import Blocking
from streamcodec.client.calls import model_path
from streamcodec.client.common import Common
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import Exchange, InferResult, Placing
from streamcodec.client.fields import Auth, Headers
from streamcodec.client.timeouts import SECONDS, Timeout, Times
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.message import Values
from streamcodec.engine.placement import Place
from streamcodec.formats.v2.model import Event, RequestedOutput


class Client:
    """A blocking client, for as many threads as like to call it: each call has a connection of its own meanwhile.

    Tensors of a request are sent from the arrays' own memory; those of an answer are received straight into theirs. The
    client reads while it sends, so a refusal ends the sending, and a server may answer row by row.

    Example::

        with Client("http://127.0.0.1:8000") as client:
            result = client.infer("identity", {"x": np.ones((2, 3), np.float32)})
            print(result["x"])
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: Auth | None = None,
        verify: bool | str | Path = True,
        ssl_context: ssl.SSLContext | None = None,
        timeout: float | Timeout | None = SECONDS,
        total_timeout: float | None = 3600.0,
        max_connections: int = 10,
        keepalive_expiry: float | None = 60.0,
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
        media_type: str | None = None,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `http://127.0.0.1:8000` or `https://example.org`. A user and a password in it are sent as Basic
                authentication, and shown nowhere.
            headers: fields for every request, as a mapping or in pairs; `Host` may be among them. What the message
                needs, such as `Content-Length`, is not.
            auth: a pair of user and password; or a bearer token; or a function without arguments that returns the
                token, called for each request. An `Authorization` among `headers` wins over it.
            verify: True to trust the certificates that the system trusts; the path of a file or folder of others to be
                trusted instead; False to trust everybody, who then can read and change everything.
            ssl_context: says that and more, as a certificate of the client. If it offers protocols (ALPN), it should
                offer HTTP/1.1 only, by `set_alpn_protocols(["http/1.1"])`: a server that chooses `h2` is an error.
            timeout: seconds without progress before giving up, in each phase of a call: waiting for a connection,
                connecting, sending and receiving; or a `Timeout`, which tells them apart. None waits for ever.
            total_timeout: seconds for a whole call, whatever moves meanwhile: waiting for a connection, looking up the
                server's name, connecting, sending, and receiving the answer. It ends what `timeout` does not, as an
                answer of which a byte comes now and then. None for no such limit. Of `stream`, what the caller does
                between two events does not count.
            max_connections: at a time. Further calls wait until one is free.
            keepalive_expiry: seconds for which a connection that nobody uses is kept for the next call; None for ever.
            limits: caps on every answer.
            request_compression: `gzip` or `deflate` to compress inference requests, where that makes them smaller.
                It pays on slow networks only: of tensors, 30 to 130 MB are compressed in a second.
            response_compression: `gzip` or `deflate` to ask for inference responses like that. A server need not do
                it; what it sends is understood in any case.
            media_type: `SAGEMAKER_MEDIA_TYPE` or `VERTEX_AI_MEDIA_TYPE`, to say the length of a request's JSON header
                in `Content-Type`, for gateways that pass on no other field; None for
                `Inference-Header-Content-Length`. Answers in either form are understood in any case.

        Raises:
            LocalProtocolError: the URL is none of an HTTP server, a field cannot be sent, there is no such compression
                or media type, or no certificates can be read.
        """
        self._common = Common(
            url,
            headers=headers,
            auth=auth,
            verify=verify,
            ssl_context=ssl_context,
            timeout=timeout,
            total_timeout=total_timeout,
            max_connections=max_connections,
            keepalive_expiry=keepalive_expiry,
            limits=limits,
            request_compression=request_compression,
            response_compression=response_compression,
            media_type=media_type,
            is_paced=False,
        )
        self._blocking = Blocking(self._common)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
        out: Mapping[str, np.ndarray[Any, Any]] | None = None,
        place: Place | None = None,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> InferResult:
        """Have a model compute its outputs.

        Args:
            model: its name.
            inputs: arrays by name; the dtype says the datatype, arrays of objects or strings are BYTES. Or `Elements`;
                or `Rows`, whose windows are asked for while they are sent, and which are never compressed.
            outputs: the outputs wanted, by name or as `RequestedOutput`, which may say a form of its own; None for all.
            request_id: to be echoed in the answer; None for one that is the same for all requests of the client.
            parameters: of the request, for the model.
            version: of the model; None for the server's choice.
            is_binary: whether tensors travel as bytes, both ways, or as JSON.
            out: arrays by the name of the output that is to be received into them: of its dtype and shape, C-contiguous
                and writable. They are the outputs in the result then. Not for BYTES. After an error, what they hold is
                undefined.
            place: decides whose memory the outputs that are not in `out` go to; None for new arrays. It cannot ask for
                windows, see `stream`.
            headers: fields for this request, besides the client's; those of the same names win.
            timeout: for this call; None for the client's own, `math.inf` for none.
            total_timeout: seconds for this call; None for the client's own limit, `math.inf` for none.

        Returns:
            The outputs. A server may answer in JSON what was asked for in binary; the arrays are the same.

        Raises:
            ServerError: the server answered with an error; its text is in the message.
            RemoteProtocolError: the answer breaks the protocol.
            LocalProtocolError: an input has no form in the protocol, windows are not what was declared, an output does
                not fit the memory that it was to go to, or `ssl_context` has offered what the client does not speak.
            TimeoutError: no progress for `timeout` seconds, or no end within `total_timeout`.
            OSError: the connection could not be made, or broke; `ssl.SSLError` is one. A connection that was kept from
                an earlier call, and breaks before anything of the answer has come, is replaced by a new one, once,
                unless the request has `Rows` whose windows can be made once only. The server may get it twice then.
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            placing=Placing(out, place),
            headers=headers,
        )
        exchange.compress()
        return self._call(exchange, times).infer_result()

    @contextmanager
    def stream(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
        place: Place | None = None,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> Iterator[Iterator[Event]]:
        """Have a model compute its outputs, and take them as they come.

        The events are those of a decoder: one `HeaderReceived`, then `TensorReceived` or, where `place` has asked for
        `Windows`, `WindowReceived`, and one `EndOfMessage`. The request goes out while events are waited for. When the
        `with` block is left before the last event, the connection is closed, and the server knows that nobody listens.
        Until it is left, it holds one of the client's connections.

        Args:
            model: its name.
            inputs: as for `infer`.
            outputs: as for `infer`.
            request_id: as for `infer`.
            parameters: as for `infer`.
            version: as for `infer`.
            is_binary: as for `infer`.
            place: decides whose memory each output goes to, as for a decoder; None for new arrays.
            headers: as for `infer`.
            timeout: as for `infer`.
            total_timeout: as for `infer`; the time that the caller takes between two events does not count.

        Yields:
            The events; what `infer` raises, the iterator raises.

        Example::

            rows = Rows("FP32", (1_000_000, 1024), read_windows())
            with client.stream("scale", {"x": rows}, place=lambda spec: Windows()) as events:
                for event in events:
                    if isinstance(event, WindowReceived):
                        use(event.array)  # its memory is used again for the next one
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            placing=Placing(place=place),
            headers=headers,
        )
        exchange.compress()
        with closing(self._blocking.events(exchange, times)) as events:
            yield events

    def infer_raw(
        self,
        model: str,
        tensor: Values,
        *,
        version: str | None = None,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> InferResult:
        """Have a model of one input compute its outputs, by a raw binary request.

        Specification, "Raw Binary Request": the body is the tensor and nothing else. The server deduces the rest from
        the model's metadata and the length, and answers all outputs in binary. Triton can do it, KServe cannot.

        Args:
            model: its name.
            tensor: the input, of the datatype that the model declares; BYTES of one element.
            version: of the model; None for the server's choice.
            headers: as for `infer`.
            timeout: as for `infer`.
            total_timeout: as for `infer`.

        Raises:
            ServerError: the server answered with an error, as when the bytes do not fill the model's input.
            LocalProtocolError: the tensor has no form in the protocol.
            RemoteProtocolError: as from `infer`, and so are `TimeoutError` and `OSError`.
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer_raw(model, tensor, version=version, headers=headers)
        return self._call(exchange, times).infer_result()

    def server_metadata(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return the server's name, version and extensions; raises as `infer` does."""
        return self._document("/v2", headers, timeout, total_timeout)

    def model_metadata(
        self,
        model: str,
        version: str | None = None,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return a model's inputs, outputs and versions; raises as `infer` does."""
        return self._document(model_path(model, version), headers, timeout, total_timeout)

    def is_server_live(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether the server answers; raises as `infer` does if there is none."""
        return self._is_success("/v2/health/live", headers, timeout, total_timeout)

    def is_server_ready(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether the server is ready for requests; raises as `infer` does if there is none."""
        return self._is_success("/v2/health/ready", headers, timeout, total_timeout)

    def is_model_ready(
        self,
        model: str,
        version: str | None = None,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether a model is ready for requests; raises as `infer` does if there is no server."""
        return self._is_success(f"{model_path(model, version)}/ready", headers, timeout, total_timeout)

    def close(self) -> None:
        """Close all connections, those that calls are using at the end of these; the next call makes a new one."""
        self._common.pool.close()

    @property
    def sent_bytes(self) -> int:
        """Bytes of requests, heads and all, that the system has taken so far: of all calls, those under way included.

        What TLS adds does not count. Any thread may ask at any time, to show how far a long call has come.
        """
        return self._common.pool.traffic.sent

    @property
    def received_bytes(self) -> int:
        """Bytes of answers, heads and all, that have come so far: of all calls, as with `sent_bytes`."""
        return self._common.pool.traffic.received

    @property
    def received_copied(self) -> int:
        """Bytes of answers so far that were copied in user space; all others were received in place."""
        return self._common.pool.traffic.copied

    def __enter__(self) -> Self:
        """Use the client in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def _document(
        self, path: str, headers: Headers | None, timeout: float | Timeout | None, total_timeout: float | None
    ) -> dict[str, Any]:
        times = self._common.times(timeout, total_timeout)
        return self._call(self._common.calls.get(path, headers), times).document()

    def _is_success(
        self, path: str, headers: Headers | None, timeout: float | Timeout | None, total_timeout: float | None
    ) -> bool:
        times = self._common.times(timeout, total_timeout)
        try:
            self._call(self._common.calls.get(path, headers), times)
        except ServerError:
            return False
        return True

    def _call(self, exchange: Exchange, times: Times) -> Exchange:
        with closing(self._blocking.events(exchange, times)) as events:
            for event in events:
                exchange.keep(event)
        return exchange
