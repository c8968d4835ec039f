"""InferenceRESTClient: KServe's REST client, without its lists.

It is KServe's own class, with its arguments, URLs, timeouts, certificates and exceptions, over the same httpx. Two
things differ in `infer` with an `InferRequest` over V2. The body is sent piece by piece from the memory of the tensors.
A binary answer is received piece by piece into arrays, whatever its size. Everything else, V1 and graphs included, is
KServe's.

KServe sends an input in binary only if somebody has set it so. An array is sent in binary here, too, if the server
reads that: a transformer passes on what it has received as it came. Whether the server does is asked once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx
from kserve import InferenceRESTClient as KserveClient
from kserve import InferRequest, InferResponse
from kserve.errors import InvalidInput
from kserve.inference_client import RESTConfig
from kserve.logging import trace_logger
from kserve.utils import inference_client_factory
from kserve.utils.utils import is_v2

from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.formats.v2.abilities import reads_binary
from streamcodec.formats.v2.encoder import EncodedMessage
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.kserve.messages import ResponseDecoder, depends_on_server, encode_client_request

_PIECE_BYTES: Final = 256 << 10
"""So much of a tensor is copied at a time, because a transport of the user's may keep what it is given."""

_OF_THE_MESSAGE: Final = frozenset({"content-type", "content-length", HEADER_LENGTH_FIELD.lower()})


class InferenceRESTClient(KserveClient):  # type: ignore[misc]  # KServe has no types
    """KServe's `InferenceRESTClient`; only `infer` differs.

    Example::

        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            response = await client.infer(url, infer_request("double", {"x": x}), model_name="double")
            print(arrays_of(response)["y"])
    """

    def __init__(self, config: RESTConfig | None = None) -> None:
        """Prepare; nothing is sent yet.

        Args:
            config: KServe's configuration; None for its defaults, which are V1.
        """
        super().__init__(config)
        self._known: dict[str, bool] = {}

    async def infer(  # noqa: PLR0917 - KServe's arguments
        self,
        base_url: httpx.URL | str,
        data: InferRequest | dict[str, Any],
        model_name: str | None = None,
        headers: Mapping[str, str] | None = None,
        response_headers: dict[str, str] | None = None,
        is_graph_endpoint: bool = False,  # noqa: FBT001, FBT002 - KServe's
        timeout: Any = httpx.USE_CLIENT_DEFAULT,  # noqa: ANN401 - KServe's
    ) -> InferResponse | dict[str, Any]:
        """Run a model's inference.

        Args:
            base_url: of the server, with the path before `/v2`, if there is one.
            data: an `InferRequest`, of KServe's or of `infer_request`; or a dictionary, which is sent as JSON.
            model_name: the model; needed unless the URL is that of a graph.
            headers: further fields of the request.
            response_headers: receives the fields of the answer.
            is_graph_endpoint: whether the URL is that of an inference graph, which is used as it is.
            timeout: seconds, or an `httpx.Timeout`; None for none.

        Returns:
            The outputs of a binary answer are arrays that make KServe's lists only if they are asked for them. V1 and
            graphs return a dictionary.

        Raises:
            ValueError: there is no model name.
            httpx.HTTPStatusError: the server answered with an error.
            httpx.HTTPError: there is no connection, it broke, or it was too slow.
            InvalidInput: the answer is no valid answer, or an input has no data.
            InferenceError: an input cannot be sent.
        """
        is_ours = is_v2(self._config.protocol) and isinstance(data, InferRequest)
        if is_graph_endpoint or model_name is None or not is_ours:
            return await super().infer(
                base_url, data, model_name, headers, response_headers, is_graph_endpoint, timeout=timeout
            )
        url = self._construct_url(base_url, f"{self._config.protocol}/models/{model_name}/infer")
        sends_arrays = depends_on_server(data) and await self._reads_binary(base_url, headers)
        message = encode_client_request(data, sends_arrays=sends_arrays)
        if self._config.verbose:
            trace_logger.info("url: %s", url)
            trace_logger.info("request: %d bytes", message.body_length)
        fields = {name: value for name, value in (headers or {}).items() if name.lower() not in _OF_THE_MESSAGE}
        fields.update(message.headers)
        sending = self._client.stream("POST", url, content=_pieces(message), headers=fields, timeout=timeout)
        async with sending as response:
            answer = await self._received(response)
        if response_headers is not None:
            response_headers.update(response.headers)
        return answer

    async def _received(self, response: httpx.Response) -> InferResponse:
        """Receive an answer, while it arrives."""
        if self._config.verbose:
            trace_logger.info("response code: %s, headers: %s", response.status_code, response.headers)
        if not response.is_success:
            await response.aread()
            raise self._construct_http_status_error(response)
        length = response.headers.get(HEADER_LENGTH_FIELD)
        if length is None:  # JSON: lists, of which programs see the nesting
            content = await response.aread()
            return InferResponse.from_bytes(content, len(content))
        if not (length.isascii() and length.isdecimal()):
            msg = f"{HEADER_LENGTH_FIELD} of the answer is no number: {length[:40]!r}"
            raise InvalidInput(msg)
        try:
            decoder = ResponseDecoder(int(length))
            async for piece in response.aiter_bytes():
                decoder.feed(piece)
            return decoder.finish()
        except RemoteProtocolError as error:
            msg = f"the answer is invalid: {error}"
            raise InvalidInput(msg) from error

    async def _reads_binary(self, base_url: httpx.URL | str, headers: Mapping[str, str] | None) -> bool:
        """Tell whether a server reads binary tensors; it is asked once.

        If it cannot be asked, it gets what KServe would send.
        """
        key = str(base_url)
        if key not in self._known:
            try:
                response = await self._client.get(self._construct_url(base_url, self._config.protocol), headers=headers)
                self._known[key] = response.is_success and reads_binary(response.json())
            except (httpx.HTTPError, ValueError):
                return False
        return self._known[key]


def replace_client() -> None:
    """Have `Model.predict` and `Model.explain` of this process call with our client."""
    inference_client_factory.InferenceRESTClient = InferenceRESTClient


async def _pieces(message: EncodedMessage) -> AsyncIterator[bytes]:
    for buffer in message.buffers:
        for start in range(0, len(buffer), _PIECE_BYTES):
            yield bytes(buffer[start : start + _PIECE_BYTES])
