"""Client: a blocking client of V2 servers."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamcodec.client.calls import Values, get, infer, infer_raw, model_path
from streamcodec.client.connecting import connect
from streamcodec.client.exchange import Address, Compression, Exchange, InferResult, Placing, ServerError
from streamcodec.core.errors import LocalProtocolError, RemoteProtocolError
from streamcodec.core.events import Event
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.model import RequestedOutput
from streamcodec.core.placement import Place
from streamcodec.http.client import ClientConnection
from streamcodec.http.messages import HttpEvent
from streamcodec.transports import sync
from streamcodec.transports.duplex import Duplex
from streamcodec.transports.timelimit import TimeLimit


class Client:
    """A blocking client. It keeps one connection open and is meant for one thread at a time.

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
        timeout: float | None = 60.0,
        total_timeout: float | None = 3600.0,
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `http://127.0.0.1:8000`.
            timeout: seconds without progress in either direction, connecting included, before giving up; None waits for
                ever.
            total_timeout: seconds for a whole call, whatever moves meanwhile: looking up the server's name, connecting,
                sending, and receiving the answer. It ends what `timeout` does not, as an answer of which a byte comes
                now and then. None for no such limit. Of `stream`, what the caller does between two events does not
                count.
            limits: caps on every answer.
            request_compression: `gzip` or `deflate` to compress inference requests, where that makes them smaller.
                It pays on slow networks only: of tensors, 30 to 130 MB are compressed in a second.
            response_compression: `gzip` or `deflate` to ask for inference responses like that. A server need not do
                it; what it sends is understood in any case.

        Raises:
            LocalProtocolError: the URL is none of an HTTP server, or there is no such compression.
        """
        self._address = Address.of(url)
        self._timeout = timeout
        self._total_timeout = total_timeout
        self._limits = limits
        self._compression = Compression(request=request_compression, response=response_compression)
        self._socket: socket.socket | None = None
        self._connection = ClientConnection(limits)
        self._is_busy = False

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
        total_timeout: float | None = None,
    ) -> InferResult:
        """Have a model compute its outputs.

        Args:
            model: its name.
            inputs: arrays by name; the dtype says the datatype, arrays of objects or strings are BYTES. Or `Elements`;
                or `Rows`, whose windows are asked for while they are sent, and which are never compressed.
            outputs: the outputs wanted, by name or as `RequestedOutput`, which may say a form of its own; None for all.
            request_id: to be echoed in the answer.
            parameters: of the request, for the model.
            version: of the model; None for the server's choice.
            is_binary: whether tensors travel as bytes, both ways, or as JSON.
            out: arrays by the name of the output that is to be received into them: of its dtype and shape, C-contiguous
                and writable. They are the outputs in the result then. Not for BYTES. After an error, what they hold is
                undefined.
            place: decides whose memory the outputs that are not in `out` go to; None for new arrays. It cannot ask for
                windows, see `stream`.
            total_timeout: seconds for this call; None for the client's own limit, `math.inf` for none.

        Returns:
            The outputs. A server may answer in JSON what was asked for in binary; the arrays are the same.

        Raises:
            ServerError: the server answered with an error; its text is in the message.
            RemoteProtocolError: the answer breaks the protocol.
            LocalProtocolError: an input has no form in the protocol, windows are not what was declared, or an output
                does not fit the memory that it was to go to.
            TimeoutError: no progress for `timeout` seconds, or no end within `total_timeout`.
            OSError: the connection could not be made, or broke.
        """
        limit = self._limit(total_timeout)
        exchange = infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            limits=self._limits,
            compression=self._compression,
            placing=Placing(out, place),
        )
        exchange.compress()
        return self._call(exchange, limit).infer_result()

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
        total_timeout: float | None = None,
    ) -> Iterator[Iterator[Event]]:
        """Have a model compute its outputs, and take them as they come.

        The events are those of a decoder: one `HeaderReceived`, then `TensorReceived` or, where `place` has asked for
        `Windows`, `WindowReceived`, and one `EndOfMessage`. The request goes out while events are waited for. When the
        `with` block is left before the last event, the connection is closed, and the server knows that nobody listens.
        Until it is left, the client can do nothing else.

        Args:
            model: its name.
            inputs: as for `infer`.
            outputs: as for `infer`.
            request_id: as for `infer`.
            parameters: as for `infer`.
            version: as for `infer`.
            is_binary: as for `infer`.
            place: decides whose memory each output goes to, as for a decoder; None for new arrays.
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
        limit = self._limit(total_timeout)
        exchange = infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            limits=self._limits,
            compression=self._compression,
            placing=Placing(place=place),
        )
        exchange.compress()
        with closing(self._events(exchange, limit)) as events:
            yield events

    def infer_raw(
        self, model: str, tensor: Values, *, version: str | None = None, total_timeout: float | None = None
    ) -> InferResult:
        """Have a model of one input compute its outputs, by a raw binary request.

        Specification, "Raw Binary Request": the body is the tensor and nothing else. The server deduces the rest from
        the model's metadata and the length, and answers all outputs in binary. Triton can do it, KServe cannot.

        Args:
            model: its name.
            tensor: the input, of the datatype that the model declares; BYTES of one element.
            version: of the model; None for the server's choice.
            total_timeout: as for `infer`.

        Raises:
            ServerError: the server answered with an error, as when the bytes do not fill the model's input.
            LocalProtocolError: the tensor has no form in the protocol.
            RemoteProtocolError: as from `infer`, and so are `TimeoutError` and `OSError`.
        """
        limit = self._limit(total_timeout)
        exchange = infer_raw(model, tensor, version=version, limits=self._limits, compression=self._compression)
        return self._call(exchange, limit).infer_result()

    def server_metadata(self) -> dict[str, Any]:
        """Return the server's name, version and extensions; raises as `infer` does."""
        return self._document("/v2")

    def model_metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Return a model's inputs, outputs and versions; raises as `infer` does."""
        return self._document(model_path(model, version))

    def is_server_live(self) -> bool:
        """Tell whether the server answers; raises as `infer` does if there is none."""
        return self._is_success("/v2/health/live")

    def is_server_ready(self) -> bool:
        """Tell whether the server is ready for requests; raises as `infer` does if there is none."""
        return self._is_success("/v2/health/ready")

    def is_model_ready(self, model: str, version: str | None = None) -> bool:
        """Tell whether a model is ready for requests; raises as `infer` does if there is no server."""
        return self._is_success(f"{model_path(model, version)}/ready")

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def received_copied(self) -> int:
        """Bytes of answers on this connection that were copied in user space; all others were received in place."""
        return self._connection.incoming.received_copied

    def __enter__(self) -> Self:
        """Use the client in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def _document(self, path: str) -> dict[str, Any]:
        return self._call(get(path, self._limits), self._limit()).document()

    def _is_success(self, path: str) -> bool:
        try:
            self._call(get(path, self._limits), self._limit())
        except ServerError:
            return False
        return True

    def _limit(self, total_timeout: float | None = None) -> TimeLimit:
        return TimeLimit(self._total_timeout if total_timeout is None else total_timeout)

    def _call(self, exchange: Exchange, limit: TimeLimit) -> Exchange:
        for event in self._events(exchange, limit):
            exchange.keep(event)
        return exchange

    def _events(self, exchange: Exchange, limit: TimeLimit) -> Generator[Event, None, None]:
        """Send a request, and yield the events of its answer."""
        sock = self._connect(limit)
        parts = exchange.start(self._connection, self._address)
        duplex: Duplex[HttpEvent] = Duplex(
            sock,
            self._connection,
            parts,
            read_timeout=self._timeout,
            write_timeout=self._timeout,
            limit=limit,
        )
        self._is_busy = True
        try:
            while not exchange.has_ended:
                event = exchange.receive(self._connection, duplex.next_event())
                if not exchange.is_success:
                    duplex.stop_sending()
                if event is not None:
                    with limit.paused():
                        yield event
        except (ConnectionError, RemoteProtocolError) as error:
            # A server that refuses may close before it has read all; if no answer has come, this is what matters.
            raise exchange.refusal(error) or duplex.lost or error from None
        finally:
            self._is_busy = False
            if not (exchange.is_answered and duplex.is_sent):
                self.close()
        exchange.check_status()

    def _connect(self, limit: TimeLimit) -> socket.socket:
        if self._is_busy:
            raise LocalProtocolError("the answer to the last request is still being received; leave its `with` block")
        if self._socket is not None and self._connection.is_reusable and not sync.has_input(self._socket):
            return self._socket
        self.close()
        self._socket = connect(self._address.host, self._address.port, timeout=self._timeout, limit=limit)
        self._connection = ClientConnection(self._limits)
        return self._socket
