"""Client: a blocking client of V2 servers."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from streamcodec.client.exchange import Address, Compression, Exchange, InferResult, get, infer, infer_raw, model_path
from streamcodec.core.errors import RemoteProtocolError
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.model import RequestedOutput
from streamcodec.http.client import ClientConnection
from streamcodec.transports import sync


class Client:
    """A blocking client. It keeps one connection open and is meant for one thread at a time.

    Tensors of a request are sent from the arrays' own memory; those of an answer are received straight into theirs.

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
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `http://127.0.0.1:8000`.
            timeout: seconds without progress, connecting included, before giving up; None waits for ever.
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
        self._limits = limits
        self._compression = Compression(request=request_compression, response=response_compression)
        self._socket: socket.socket | None = None
        self._connection = ClientConnection(limits)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
    ) -> InferResult:
        """Have a model compute its outputs.

        Args:
            model: its name.
            inputs: arrays by name; the dtype says the datatype, arrays of objects or strings are BYTES.
            outputs: the outputs wanted, by name or as `RequestedOutput`, which may say a form of its own; None for all.
            request_id: to be echoed in the answer.
            parameters: of the request, for the model.
            version: of the model; None for the server's choice.
            is_binary: whether tensors travel as bytes, both ways, or as JSON.

        Returns:
            The outputs. A server may answer in JSON what was asked for in binary; the arrays are the same.

        Raises:
            ServerError: the server answered with an error; its text is in the message.
            RemoteProtocolError: the answer breaks the protocol.
            LocalProtocolError: an input has no form in the protocol.
            TimeoutError: no progress for `timeout` seconds.
            OSError: the connection could not be made, or broke.
        """
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
        )
        exchange.compress()
        return self._call(exchange).infer_result()

    def infer_raw(self, model: str, tensor: npt.ArrayLike, *, version: str | None = None) -> InferResult:
        """Have a model of one input compute its outputs, by a raw binary request.

        Specification, "Raw Binary Request": the body is the tensor and nothing else. The server deduces the rest from
        the model's metadata and the length, and answers all outputs in binary. Triton can do it, KServe cannot.

        Args:
            model: its name.
            tensor: the input, of the datatype that the model declares; BYTES of one element.
            version: of the model; None for the server's choice.

        Raises:
            ServerError: the server answered with an error, as when the bytes do not fill the model's input.
            LocalProtocolError: the tensor has no form in the protocol.
            RemoteProtocolError: as from `infer`, and so are `TimeoutError` and `OSError`.
        """
        exchange = infer_raw(model, tensor, version=version, limits=self._limits, compression=self._compression)
        return self._call(exchange).infer_result()

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
        return self._call(get(path, self._limits)).document()

    def _is_success(self, path: str) -> bool:
        return self._call(get(path, self._limits)).is_success

    def _call(self, exchange: Exchange) -> Exchange:
        sock = self._connect()
        buffers = exchange.start(self._connection, self._address)
        is_kept = False
        lost: ConnectionError | None = None
        try:
            try:
                sync.send(sock, buffers)
            except ConnectionError as error:
                lost = error  # a server that refuses closes before it has read all; its answer may be there already
            while not exchange.receive(self._connection, sync.next_event(sock, self._connection)):
                pass
            is_kept = lost is None and not exchange.has_server_failed
        except (ConnectionError, RemoteProtocolError) as error:
            raise lost or error from None
        finally:
            if not is_kept:
                self.close()
        return exchange

    def _connect(self) -> socket.socket:
        if self._socket is not None and self._connection.is_reusable and not sync.has_input(self._socket):
            return self._socket
        self.close()
        self._socket = socket.create_connection((self._address.host, self._address.port), self._timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientConnection(self._limits)
        return self._socket
