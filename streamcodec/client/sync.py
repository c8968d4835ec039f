"""Client: a blocking client of V2 servers."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamcodec.client.blocking import Blocking
from streamcodec.client.calls import model_path
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import SECONDS, Timeout, Times
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange, InferResult, Placing
from streamcodec.client.fields import Auth, Headers
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.client.raw import Receive
from streamcodec.client.uploads.uploading import OnResume, Uploading
from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place
from streamcodec.engine.message import Values
from streamcodec.formats.v2.model import Event, RequestedOutput


class Client:
    """A blocking client. Any number of threads may use it at once; each call uses its own connection.

    Tensors of a request are sent from the memory of the arrays. Tensors of an answer are received straight into the
    memory of the result. The client reads while it sends. So a refusal stops the sending, and a server may answer row
    by row.

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
        memory_lane: MemoryLane | None = None,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `http://127.0.0.1:8000` or `https://example.org`, or `http+unix://%2Frun%2Fmodels.sock` for a Unix
                socket. A user and a password in it are sent as Basic authentication, and never shown.
            headers: fields for every request, as a mapping or in pairs; `Host` is allowed. Fields that the message
                needs, such as `Content-Length`, are not allowed.
            auth: a pair of user and password; or a bearer token; or a function without arguments that returns the
                token, called for each request. An `Authorization` in `headers` has precedence.
            verify: True to trust the certificates that the system trusts. A path of a file or folder to trust its
                certificates instead. False to trust every server: whoever is on the way can then read and change
                everything.
            ssl_context: replaces `verify`, and may do more, such as give a certificate of the client. If it offers
                protocols (ALPN), it should offer HTTP/1.1 only, with `set_alpn_protocols(["http/1.1"])`: a server that
                chooses `h2` is an error.
            timeout: seconds without progress before giving up, in each phase of a call: waiting for a connection,
                connecting, sending and receiving; or a `Timeout` with one value for each phase. None waits for ever.
            total_timeout: seconds for a whole call, even with progress: waiting for a connection, looking up the
                server's name, connecting, sending, and receiving the answer. It also ends an answer of which only a
                byte arrives from time to time, which `timeout` does not. None for no such limit. In `stream`, the time
                that the caller uses between two events does not count.
            max_connections: at one time. Further calls wait until one is free.
            keepalive_expiry: seconds for which an unused connection is kept for the next call; None for ever.
            limits: bound every answer.
            request_compression: `gzip` or `deflate` to compress inference requests, if that makes them smaller. This
                helps on slow networks only: tensors are compressed at 30 to 130 MB/s.
            response_compression: `gzip` or `deflate` to ask for compressed inference responses. A server need not
                comply; the client reads both.
            media_type: `SAGEMAKER_MEDIA_TYPE` or `VERTEX_AI_MEDIA_TYPE`, to give the length of a request's JSON header
                in `Content-Type`, for gateways that pass on no other field; None for `Inference-Header-Content-Length`.
                The client reads answers in both forms.
            memory_lane: memory to share with the server of a Unix socket, so that the tensors of `infer` are not sent;
                see `MemoryLane`. A server that offers no memory lane gets them as usual.

        Raises:
            LocalProtocolError: the URL is not that of an HTTP server, a field cannot be sent, there is no such
                compression or media type, no certificates can be read, or there is a memory lane for TCP.
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
            memory_lane=memory_lane,
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
        resumable: str | PathLike[str] | bool = False,
        outage: float = 60.0,
        on_resume: OnResume | None = None,
    ) -> InferResult:
        """Run a model's inference.

        Args:
            model: its name.
            inputs: arrays by name. The dtype gives the datatype; arrays of objects or strings are BYTES. Or `Elements`;
                or `Rows`, whose windows are requested while they are sent, and which are never compressed.
            outputs: the requested outputs, by name or as `RequestedOutput`, which may choose a form; None for all.
            request_id: returned in the answer; None for an id that is the same for all requests of the client.
            parameters: of the request, for the model.
            version: of the model; None for the server's choice.
            is_binary: whether tensors are sent as bytes, in both directions, or as JSON.
            out: arrays, by output name, to receive outputs into. They must have the dtype and shape of the output, and
                be C-contiguous and writable. They are then the outputs in the result. Not for BYTES. After an error,
                their content is undefined.
            place: chooses the memory for outputs that are not in `out`; None for new arrays. It cannot ask for windows;
                see `stream`.
            headers: fields for this request, in addition to the client's; those with the same names win.
            timeout: for this call; None for the client's own, `math.inf` for none.
            total_timeout: seconds for this call; None for the client's own limit, `math.inf` for none.
            resumable: whether the request goes on at the byte where its connection broke, instead of failing. The
                server has to offer this (`serve --resumable-uploads`). A path names a file that keeps the name of the
                upload, which is a secret: then the same request goes on after a restart of this program, too. It is
                the same if all of its bytes are, so all inputs are read once before. A server that has no room for
                another upload gets the request in one message, which is not resumed.
            outage: seconds without progress before a `resumable` request fails; `math.inf` to try until
                `total_timeout`.
            on_resume: called when a `resumable` request begins or goes on: with the bytes that the server has, and
                those of the whole request.

        Returns:
            The outputs. A server may answer in JSON although binary was requested; the arrays are the same.

        Raises:
            ServerError: the server answered with an error; its text is in the message.
            RemoteProtocolError: the answer breaks the protocol.
            LocalProtocolError: an input cannot be sent in this protocol, windows differ from the declaration, an output
                does not fit its memory, or `ssl_context` has offered a protocol that the client does not speak.
            TimeoutError: no progress for `timeout` seconds, or no end within `total_timeout`.
            OSError: the connection could not be made, or broke; `ssl.SSLError` is one. If a kept connection breaks
                before any byte of the answer has arrived, the request is sent again once on a new connection, and the
                server may receive it twice. This is not done for `Rows` whose windows can be made only once.
        """
        times = self._common.times(timeout, total_timeout)
        arguments: dict[str, Any] = {
            "outputs": outputs,
            "request_id": request_id,
            "parameters": parameters,
            "version": version,
            "is_binary": is_binary,
            "placing": Placing(out, place),
            "headers": headers,
        }
        if resumable is not False:
            return self._upload(
                self._common.calls.upload(model, inputs, resumable, outage=outage, on_resume=on_resume, **arguments),
                times,
            )
        exchange = self._common.calls.infer(model, inputs, **arguments)
        exchange.compress()
        exchange.use_lane()
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
        """Run a model's inference, and receive its outputs as they arrive.

        The events are those of a decoder: one `HeaderReceived`, then `TensorReceived`, or `WindowReceived` if `place`
        has asked for `Windows`, and one `EndOfMessage`. The request is sent while the caller waits for events. If the
        `with` block is left before the last event, the connection is closed, so the server sees that nobody listens.
        The block holds one of the client's connections until it is left.

        Args:
            model: its name.
            inputs: as for `infer`.
            outputs: as for `infer`.
            request_id: as for `infer`.
            parameters: as for `infer`.
            version: as for `infer`.
            is_binary: as for `infer`.
            place: chooses the memory for each output, as for a decoder; None for new arrays.
            headers: as for `infer`.
            timeout: as for `infer`.
            total_timeout: as for `infer`; the time that the caller uses between two events does not count.

        Yields:
            The events. The iterator raises the errors of `infer`.

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
        """Run the inference of a model with one input by a raw binary request.

        Specification, "Raw Binary Request": the body is the tensor and nothing else. The server deduces the rest from
        the model's metadata and the length, and answers all outputs in binary. Triton supports it, KServe does not.

        Args:
            model: its name.
            tensor: the input, with the datatype that the model declares; BYTES with one element.
            version: of the model; None for the server's choice.
            headers: as for `infer`.
            timeout: as for `infer`.
            total_timeout: as for `infer`.

        Raises:
            ServerError: the server answered with an error, for example if the bytes do not fill the model's input.
            LocalProtocolError: the tensor cannot be sent in this protocol.
            RemoteProtocolError: as from `infer`; so are `TimeoutError` and `OSError`.
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer_raw(model, tensor, version=version, headers=headers)
        return self._call(exchange, times).infer_result()

    def request(
        self,
        method: str,
        path: str,
        receive: Receive,
        *,
        headers: Headers = (),
        parts: Sequence[bytes | memoryview] = (),
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> list[Event]:
        """Send a request of your own, and return what the receiver of its answer reports, whatever the status.

        For extensions of the protocol that have no method here. The answer is not checked.

        Args:
            method: upper case, as `POST`.
            path: behind the path of the client's URL, percent-encoded, with the query.
            receive: called with the head of the answer, and with whether the receiver has to be paced. Returns the
                receiver of the body: a `streamcodec.http.Collector`, or a decoder.
            headers: all fields that describe the message, but for its length; they win over the client's own.
            parts: the body. Nothing of it is copied.
            timeout: as for `infer`.
            total_timeout: as for `infer`.

        Raises:
            LocalProtocolError: the request is not valid HTTP.
            RemoteProtocolError: the answer is not valid HTTP, or the receiver refuses it.
            TimeoutError: as from `infer`; so is `OSError`.
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.raw(method, path, headers, parts, receive)
        self._call(exchange, times)
        return exchange.events

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
        """Close all connections; those in use are closed when their calls end. The next call makes a new one."""
        self._common.pool.close()

    @property
    def sent_bytes(self) -> int:
        """Bytes of requests, heads included, that the system has taken so far, in all calls, running ones included.

        The overhead of TLS does not count. Any thread may ask at any time, to show the progress of a long call.
        """
        return self._common.pool.traffic.sent

    @property
    def received_bytes(self) -> int:
        """Bytes of answers, heads included, that have arrived so far, in all calls, as for `sent_bytes`."""
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

    def _upload(self, uploading: Uploading, times: Times) -> InferResult:
        uploading.begin()
        while True:
            exchange = uploading.next_exchange()
            try:
                self._call(exchange, times)
            except (OSError, MessageError) as error:
                seconds = uploading.failed(exchange, error, monotonic(), is_over=times.limit.is_over)
                sleep(times.limit.at_most(seconds) or 0.0)
                continue
            if uploading.succeeded(exchange):
                return exchange.infer_result()

    def _call(self, exchange: ClientExchange, times: Times) -> ClientExchange:
        with closing(self._blocking.events(exchange, times)) as events:
            for event in events:
                exchange.keep(event)
        return exchange
