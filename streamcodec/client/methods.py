"""Methods: what both clients can do, written once, as coroutines.

`AsyncClient` has these methods. `Client` has them, too, and brings each coroutine to its end at once: what a call waits
for is waited for by its `Waits`, in the calling thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from time import monotonic
from typing import Any, Final, TypeVar

import numpy as np

from streamcodec.client.calls import NO_BINARY
from streamcodec.client.connections.timeouts import Timeout, Times
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange, InferResult, Placing
from streamcodec.client.extensions import QueryParams, with_scheduling
from streamcodec.client.fields import Headers
from streamcodec.client.management import Management
from streamcodec.client.raw import Receive
from streamcodec.client.repeating.retries import Retries
from streamcodec.client.uploads.uploading import OnResume, Uploading
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.memory.placement import Place
from streamcodec.engine.message import Values
from streamcodec.formats.v2.abilities import reads_binary
from streamcodec.formats.v2.model import Event, RequestedOutput

_NEXT_IS_JSON: Final = f"{NO_BINARY}; the next request of this client is JSON"
T = TypeVar("T")


class Methods(Management):
    """The methods of a client."""

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        priority: int = 0,
        version: str | None = None,
        is_binary: bool = True,
        out: Mapping[str, np.ndarray[Any, Any]] | None = None,
        place: Place | None = None,
        headers: Headers | None = None,
        query_params: QueryParams | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        hedge: float | None = None,
        resumable: str | PathLike[str] | bool = False,
        outage: float = 60.0,
        on_resume: OnResume | None = None,
    ) -> InferResult:
        """Run a model's inference.

        Args:
            model: its name.
            inputs: arrays by name. The dtype gives the datatype; arrays of objects or strings are BYTES. Or `Elements`;
                or `Rows`, whose windows are requested while they are sent, and which are never compressed. With an
                `AsyncClient`, windows may be asynchronous, unless the request is `resumable`. Otherwise they are made
                on the event loop, so each should be quick.
            outputs: the requested outputs, by name or as `RequestedOutput`, which may choose a form; None for all.
            request_id: returned in the answer; None for an id that is the same for all requests of the client. A call
                has one id, however often its request is sent.
            parameters: of the request, for the model; or for the server, as Triton's `timeout`, in microseconds.
            sequence_id: of the sequence that the request belongs to, for models with a state; 0 or "" for none.
            sequence_start: whether it is the first of its sequence.
            sequence_end: whether it is the last of its sequence.
            priority: for the server's queue, 1 for the highest; 0 for the model's default.
            version: of the model; None for the server's choice.
            is_binary: whether tensors are sent as bytes, in both directions, or as JSON. A server that reads JSON only
                is noticed by its metadata, after its first error, and gets JSON.
            out: arrays, by output name, to receive outputs into. They must have the dtype and shape of the output, and
                be C-contiguous and writable. They are then the outputs in the result. Not for BYTES. After an error,
                their content is undefined.
            place: chooses the memory for outputs that are not in `out`; None for new arrays. It cannot ask for windows;
                see `stream`.
            headers: fields for this request, in addition to the client's; those with the same names win.
            query_params: parameters of the URL; a list is several values of one name.
            timeout: for this call; None for the client's own, `math.inf` for none.
            total_timeout: seconds for this call; None for the client's own limit, `math.inf` for none.
            retries: how often to make the call again if it fails; None for the client's own number. See `Client`.
            idempotent: whether the server may run the request twice. Then `retries` cover more failures.
            hedge: seconds without an answer after which an `AsyncClient` sends an `idempotent` request once more, on
                another connection. The first answer wins, and the other connection is closed. None not to do so. A
                request with `Rows` is sent once: two readers of the same windows would disturb each other.
            resumable: whether the request goes on at the byte where its connection broke, instead of failing. The
                server has to offer this (`serve --resumable-uploads`). A path names a file that keeps the name of the
                upload, which is a secret: then the same request goes on after a restart of this program, too. It is
                the same if all of its bytes are, so all inputs are read once before. A server that has no room for
                another upload gets the request in one message, which is not resumed. `retries` and `hedge` have no
                effect on a resumable request: it goes on until `outage` is over.
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
            OSError: the connection could not be made, or broke; `ssl.SSLError` is one. If the server has closed a kept
                connection before the request came, it is sent again once on a new connection; if it is `idempotent`,
                also if the server may have received it. `Rows` whose windows can be made only once are not sent again.
        """
        rule = self._retries(retries, hedge, is_idempotent=idempotent)
        times = self._common.times(timeout, total_timeout)
        arguments: dict[str, Any] = {
            "outputs": _repeatable(outputs),
            "request_id": request_id,
            "parameters": with_scheduling(
                parameters, sequence_id, sequence_start=sequence_start, sequence_end=sequence_end, priority=priority
            ),
            "version": version,
            "is_binary": is_binary,
            "placing": None if out is None and place is None else Placing(out, place),
            "headers": _repeatable(headers),
            "query_params": query_params,
        }
        if resumable is not False:
            return await self._upload(
                self._common.calls.upload(model, inputs, resumable, outage=outage, on_resume=on_resume, **arguments),
                times,
            )
        return await self._infer(model, inputs, arguments, times, rule)

    @asynccontextmanager
    async def stream(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        priority: int = 0,
        version: str | None = None,
        is_binary: bool = True,
        place: Place | None = None,
        headers: Headers | None = None,
        query_params: QueryParams | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Run a model's inference, and receive its outputs as they arrive.

        The events are those of a decoder: one `HeaderReceived`, then `TensorReceived`, or `WindowReceived` if `place`
        has asked for `Windows`, and one `EndOfMessage`. A `Client` sends the request while the caller waits for events,
        an `AsyncClient` in the background. On a kept connection, the beginning of the block waits for the first bytes
        of the answer, because they show that the connection has not died. If the block is left before the last event,
        the connection is closed, so the server sees that nobody listens. The block holds one of the client's
        connections until it is left.

        Args:
            model: its name.
            inputs: as for `infer`.
            outputs: as for `infer`.
            request_id: as for `infer`.
            parameters: as for `infer`.
            sequence_id: as for `infer`.
            sequence_start: as for `infer`.
            sequence_end: as for `infer`.
            priority: as for `infer`.
            version: as for `infer`.
            is_binary: as for `infer`.
            place: chooses the memory for each output, as for a decoder; None for new arrays.
            headers: as for `infer`.
            query_params: as for `infer`.
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

        With an `AsyncClient`, it is `async with` and `async for`.
        """
        times = self._common.times(timeout, total_timeout)
        headers = _repeatable(headers)
        exchange = self._common.calls.infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=with_scheduling(
                parameters, sequence_id, sequence_start=sequence_start, sequence_end=sequence_end, priority=priority
            ),
            version=version,
            is_binary=is_binary,
            placing=Placing(place=place),
            headers=headers,
            query_params=query_params,
        )
        if self._common.compresses:  # this may take seconds
            await self._waits.apart(exchange.compress, times.limit)
        try:
            async with self._caller.events(exchange, times) as events:
                yield events
        except ServerError as error:
            if await self._needs_json(exchange, error, times, headers=headers, query_params=query_params):
                error.add_note(_NEXT_IS_JSON)
            raise

    async def infer_raw(
        self,
        model: str,
        tensor: Values,
        *,
        version: str | None = None,
        headers: Headers | None = None,
        query_params: QueryParams | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
        retries: int | None = None,
        idempotent: bool = False,
        hedge: float | None = None,
    ) -> InferResult:
        """Run the inference of a model with one input by a raw binary request.

        Specification, "Raw Binary Request": the body is the tensor and nothing else. The server deduces the rest from
        the model's metadata and the length, and answers all outputs in binary. Triton supports it, KServe does not.

        Args:
            model: its name.
            tensor: the input, with the datatype that the model declares; BYTES with one element.
            version: of the model; None for the server's choice.
            headers: as for `infer`.
            query_params: as for `infer`.
            timeout: as for `infer`.
            total_timeout: as for `infer`.
            retries: as for `infer`.
            idempotent: as for `infer`.
            hedge: as for `infer`.

        Raises:
            ServerError: the server answered with an error, for example if the bytes do not fill the model's input.
            LocalProtocolError: the tensor cannot be sent in this protocol.
            RemoteProtocolError: as from `infer`; so are `TimeoutError` and `OSError`.
        """
        rule = self._retries(retries, hedge, is_idempotent=idempotent)
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer_raw(
            model, tensor, version=version, headers=headers, query_params=query_params
        )
        return (await self._caller.call(exchange, times, rule)).infer_result()

    async def request(
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
        await self._caller.call(exchange, times)
        return exchange.events

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

    async def _infer(
        self, model: str, inputs: Mapping[str, Values], arguments: Mapping[str, Any], times: Times, rule: Retries
    ) -> InferResult:
        """Run an inference; in JSON, and once more, if it turns out that the server reads nothing else."""
        calls = self._common.calls
        exchange = calls.infer(model, inputs, **arguments)
        exchange.uses_lane = True
        if self._common.compresses:  # this may take seconds
            await self._waits.apart(exchange.compress, times.limit)
        try:
            result = (await self._caller.call(exchange, times, rule)).infer_result()
        except ServerError as error:
            options = {name: arguments[name] for name in ("headers", "query_params")}
            if not await self._needs_json(exchange, error, times, **options):
                raise
            if not exchange.is_repeatable:
                error.add_note(_NEXT_IS_JSON)
                raise
            return await self._infer(model, inputs, arguments, times, rule)
        if exchange.is_binary:
            calls.reads_binary = True
        return result

    async def _needs_json(
        self,
        exchange: ClientExchange,
        error: ServerError,
        times: Times,
        *,
        headers: Headers | None,
        query_params: QueryParams | None,
    ) -> bool:
        """Tell whether a request was refused because the server reads JSON only.

        Servers without the extension refuse in several ways, and some with it answer errors like that, too. So the
        server's metadata decide. They are read after the first such answer, unless the server has read bytes before.
        """
        if not exchange.is_not_understood(error):
            return False
        calls = self._common.calls
        if calls.reads_binary is None:
            asked = calls.document("/v2", None, headers=headers, query_params=query_params)
            try:
                metadata = await self._read(dict, await self._caller.call(asked, times), times)
            except (OSError, MessageError):
                return False
            calls.reads_binary = reads_binary(metadata)
            if not calls.reads_binary:
                import logging  # noqa: PLC0415 - 0.7 MiB, for clients that have no other use for it

                logging.getLogger(__name__).warning(
                    "%s: %s; requests of this client are JSON", self._common.address.authority, NO_BINARY
                )
        return not calls.reads_binary

    def _retries(self, most: int | None, hedge: float | None = None, *, is_idempotent: bool = False) -> Retries:
        """Return how a call is made again.

        Raises:
            LocalProtocolError: an argument is invalid, or a client that blocks should wait for two connections at once.
        """
        usual = self._common.retries
        if most is None and hedge is None and not is_idempotent:
            return usual
        if hedge is not None and not self._waits.shares_thread:
            raise LocalProtocolError("hedge needs an AsyncClient: a Client waits for one connection at a time")
        return Retries(most=usual.most if most is None else most, is_idempotent=is_idempotent, hedge=hedge)

    async def _upload(self, uploading: Uploading, times: Times) -> InferResult:
        if uploading.is_recorded:  # this may take seconds
            await self._waits.apart(uploading.begin, times.limit)
        while True:
            exchange = uploading.next_exchange(monotonic())
            limited = Times(timeout=uploading.timeout(times.timeout), limit=times.limit)
            try:
                await self._caller.call(exchange, limited)
            except (OSError, MessageError) as error:
                seconds = uploading.failed(exchange, error, monotonic(), is_over=times.limit.is_over)
                await self._waits.sleep(times.limit.at_most(seconds) or 0.0)
                continue
            if uploading.succeeded(exchange):
                return exchange.infer_result()


def _repeatable(values: T) -> T | list[Any]:
    """Return values that can be iterated more than once: by a request, by one in another form, and by a question."""
    return [*values] if isinstance(values, Iterator) else values
