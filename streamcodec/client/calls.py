"""Calls: makes exchanges for everything that a client can ask a V2 server.

Every inference request has an id, because KServe's server cannot answer in JSON without one. If the caller gives no id,
all requests of a client have the same one. Then equal requests have equal headers, which servers may cache.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Final, cast
from urllib.parse import quote

import numpy as np

from streamcodec.client.connections.address import Address
from streamcodec.client.exchange import ClientExchange, Compression, Placing
from streamcodec.client.extensions import QueryParams, with_query
from streamcodec.client.fields import Headers, RequestFields
from streamcodec.client.raw import RawExchange, Receive, TakeWhole
from streamcodec.client.uploads.record import Record
from streamcodec.client.uploads.uploading import OnResume, Uploading
from streamcodec.engine.arguments import MAPPINGS, check_kind
from streamcodec.engine.cache import Cache
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError, NotRepresentableError, kind_of
from streamcodec.engine.limits import Limits
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Values
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.encoder import EncodedMessage, encode_raw_request
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import parse_response_header
from streamcodec.formats.v2.json.output import dump_json
from streamcodec.formats.v2.lane import LANE_FIELD, LANE_PATH, LANE_VERSION
from streamcodec.formats.v2.model import RequestedOutput
from streamcodec.formats.v2.requestwriter import RequestWriter
from streamcodec.http.requests import RequestForm

NO_BINARY: Final = "the server reads no binary tensors: its metadata have no binary_tensor_data"
"""What is said if requests are JSON for that reason."""

_MAX_FORMS: Final = 256
_MAX_FORM_BYTES: Final = 1 << 10
_KEPT_ID: Final = "resumable"
"""The id of a request that may go on after a restart of the client."""
_MODEL: Final = "the name of a model is a str, as 'resnet'"
_VERSION: Final = "the version of a model is a str, as '1'"
_OUTPUTS: Final = "outputs are a list of names or of RequestedOutput objects, as ['y']"


class Calls:
    """Makes the exchanges with one server.

    Attributes:
        reads_binary: whether the server reads tensors as bytes; None until that is known. If not, requests are JSON.
    """

    def __init__(
        self,
        address: Address,
        fields: RequestFields,
        limits: Limits,
        compression: Compression,
        media_type: str | None,
    ) -> None:
        """Keep the properties of all requests to one server.

        Args:
            address: of the server.
            fields: for every request.
            limits: bound every answer.
            compression: of requests and answers.
            media_type: for requests with tensors; None for the usual one.
        """
        self._prefix = address.prefix
        self._origin = f"{'https' if address.is_secure else 'http'}://{address.authority}"
        self._fields = fields
        self._limits = limits
        self._compression = compression
        self._media_type = media_type
        self.reads_binary: bool | None = None
        self._request_id = secrets.token_hex(4)
        self._headers = HeaderCache(parse_response_header, limits)
        self._writer = RequestWriter()
        self._forms: Cache[tuple[str, str | None, bool] | tuple[str, str | None], RequestForm] = Cache(
            _MAX_FORMS, _MAX_FORM_BYTES
        )

    def document(
        self, path: str, body: Mapping[str, Any] | None, *, headers: Headers | None, query_params: QueryParams | None
    ) -> ClientExchange:
        """Ask for a document, or only for a status; with a JSON object as the body, this is a POST.

        Raises:
            LocalProtocolError: a value has no form in JSON.
        """
        target, fields = with_query(self._prefix + path, query_params), self._fields.of_call(headers)
        if body is None:
            return ClientExchange("GET", target, fields, None, self._limits)
        text = json_of(body)
        fields = [*fields, ("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
        return ClientExchange("POST", target, fields, None, self._limits, body=[text])

    def raw(
        self,
        method: str,
        path: str,
        headers: Headers,
        parts: Sequence[bytes | memoryview],
        receive: Receive,
        *,
        take: TakeWhole | None = None,
    ) -> RawExchange:
        """Ask for anything; see `Client.request` for the arguments. `take` may take what has come as a whole."""
        own = [*(headers.items() if isinstance(headers, Mapping) else headers)]
        if parts or method != "GET":
            own.append(("Content-Length", str(sum(map(len, parts)))))
        return RawExchange(
            method,
            self._prefix + path,
            self._fields.with_own(own),
            parts=parts,
            limits=self._limits,
            receive=receive,
            take=take,
        )

    def raw_inference(
        self,
        path: str,
        parts: Sequence[bytes | memoryview],
        receive: Receive,
        take: TakeWhole,
        *,
        media_type: str | None,
        header_length: int | None,
    ) -> RawExchange:
        """Ask for inference by a body of the caller's own, which has no fields but these and its length; see `raw`."""
        target = self._prefix + path
        form = self._forms.get((target, media_type))
        if form is None:
            own = [] if media_type is None else [("Content-Type", media_type)]
            form = RequestForm(target, self._fields.with_own(own))
            if self._fields.usual is not None:  # else each call has a token of its own
                self._forms.put((target, media_type), form)
        return RawExchange(
            "POST",
            target,
            form.fields,
            parts=parts,
            limits=self._limits,
            receive=receive,
            take=take,
            form=form,
            header_length=header_length,
        )

    def open_lane(self) -> ClientExchange:
        """Offer memory to the server, with the descriptors that are sent with it."""
        fields = [*self._fields.of_call(None), (LANE_FIELD, LANE_VERSION)]
        return ClientExchange("POST", self._prefix + LANE_PATH, fields, None, self._limits)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None,
        request_id: str | None,
        parameters: Mapping[str, Any] | None,
        version: str | None,
        is_binary: bool,
        placing: Placing | None,
        headers: Headers | None,
        query_params: QueryParams | None,
    ) -> ClientExchange:
        """Ask for inference; see `Client.infer` for the arguments."""
        message = self._message(
            inputs, outputs=outputs, request_id=request_id, parameters=parameters, is_binary=is_binary
        )
        return self._post(model, version, message, placing, headers=headers, query_params=query_params)

    def _message(
        self,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None,
        request_id: str | None,
        parameters: Mapping[str, Any] | None,
        is_binary: bool,
    ) -> EncodedMessage:
        check_kind(inputs, MAPPINGS, "inputs are arrays by name, as {'x': array}")
        is_binary = is_binary and self.reads_binary is not False
        try:
            return self._writer.encode(
                {name: _array(value, name) for name, value in inputs.items()},
                outputs=_requested(outputs, is_binary=is_binary),
                request_id=self._request_id if request_id is None else request_id,
                parameters=parameters or {},
                is_binary=is_binary,
            )
        except NotRepresentableError as error:
            if self.reads_binary is False:
                error.add_note(NO_BINARY)
            raise

    def upload(
        self,
        model: str,
        inputs: Mapping[str, Values],
        resumable: str | PathLike[str] | bool,  # noqa: FBT001 - True is one of its values
        *,
        request_id: str | None,
        version: str | None,
        headers: Headers | None,
        query_params: QueryParams | None,
        placing: Placing | None,
        outage: float,
        on_resume: OnResume | None,
        **others: Any,  # noqa: ANN401 - those of `infer`
    ) -> Uploading:
        """Ask for inference by an upload that can be resumed; see `Client.infer` for the arguments.

        Raises:
            LocalProtocolError: the client compresses requests, or some windows can be made only once.
        """
        if self._compression.request is not None:
            raise LocalProtocolError("a compressed request cannot be resumed; leave out request_compression")
        path = None if resumable is True else fspath(cast("str", resumable))
        # After a restart the client is another one, and the header has to be the same.
        message = self._message(
            inputs, request_id=_KEPT_ID if path is not None and request_id is None else request_id, **others
        )
        return Uploading(
            origin=self._origin,
            target=with_query(self._target(model, version), query_params),
            make_fields=lambda: self._fields.of_call(headers),
            message=message,
            media_type=self._media_type,
            limits=self._limits,
            placing=placing,
            record=None if path is None else Record(path),
            outage=outage,
            on_resume=on_resume,
        )

    def infer_raw(
        self,
        model: str,
        tensor: Values,
        *,
        version: str | None,
        headers: Headers | None,
        query_params: QueryParams | None,
    ) -> ClientExchange:
        """Ask for inference with a raw binary request; see `Client.infer_raw` for the arguments."""
        # The server deduces the tensor from the length of the body, so the body is never compressed.
        message = encode_raw_request(_array(tensor, "tensor"))
        return self._post(model, version, message, Placing(), headers=headers, query_params=query_params)

    def _post(
        self,
        model: str,
        version: str | None,
        message: EncodedMessage,
        placing: Placing | None,
        *,
        headers: Headers | None,
        query_params: QueryParams | None,
    ) -> ClientExchange:
        form = None if headers or query_params else self._form(model, version, message)
        return ClientExchange(
            "POST",
            with_query(self._target(model, version), query_params) if form is None else form.target,
            self._fields.of_call(headers),
            message,
            self._limits,
            compression=self._compression,
            placing=placing,
            media_type=self._media_type,
            form=form,
            headers=self._headers,
        )

    def _form(self, model: str, version: str | None, message: EncodedMessage) -> RequestForm | None:
        """Return what the heads of such calls have in common; None if there is something else in them."""
        usual = self._fields.usual
        if usual is None or self._media_type is not None or self._compression.response is not None:
            return None
        key = model, version, message.header_length is None
        form = self._forms.get(key)
        if form is None:
            fields = [*usual, message.headers[0]]
            form = RequestForm(self._target(model, version), fields)
            self._forms.put(key, form)
        return form

    def _target(self, model: str, version: str | None) -> str:
        return f"{self._prefix}{model_path(model, version)}/infer"


def model_path(model: str, version: str | None = None, *, within: str = "/v2") -> str:
    """Return the path of a model, or of one of its versions.

    Args:
        model: its name.
        version: of the model.
        within: the path before `/models`.

    Raises:
        LocalProtocolError: the name or version is no `str`, has a lone surrogate, or gives another path: it is empty,
            `.` or `..`.
    """
    path = f"{within}/models/{_segment(model, _MODEL)}"
    return path if version is None else f"{path}/versions/{_segment(version, _VERSION)}"


def _segment(name: str, expected: str) -> str:
    """Percent-encode a name. Servers and proxies interpret `.` and `..` as path steps, even if encoded."""
    check_kind(name, str, expected)
    if name in {"", ".", ".."}:
        raise LocalProtocolError(f"{name!r} as the name or version of a model would be another path")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise LocalProtocolError("the name or version of a model has a lone surrogate, which no URL can hold") from None


def json_of(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object.

    Raises:
        LocalProtocolError: a value has no form in JSON.
    """
    try:
        return dump_json(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"a value has no form in JSON: {error}") from None


def _array(values: Values, name: str) -> np.ndarray[Any, Any] | Rows | Elements:
    if isinstance(values, Rows | Elements):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:  # nested lists of several lengths
        raise LocalProtocolError(f"numpy makes no array of {name!r}: {error}") from None


def _requested(outputs: Iterable[str | RequestedOutput] | None, *, is_binary: bool) -> list[RequestedOutput] | None:
    """Return the entries of the requested outputs; None for all outputs."""
    if outputs is None:
        return None
    if isinstance(outputs, str | bytes | Mapping):
        raise LocalProtocolError(f"{_OUTPUTS}, not {kind_of(outputs)}")
    check_kind(outputs, Iterable, _OUTPUTS)
    return [_with_form(output, is_binary=is_binary) for output in outputs] or None


def _with_form(output: str | RequestedOutput, *, is_binary: bool) -> RequestedOutput:
    """Give an output an explicit form: KServe and Triton ignore `binary_data_output` if outputs are listed."""
    check_kind(output, (str, RequestedOutput), _OUTPUTS)
    if isinstance(output, str):
        return RequestedOutput(name=output, binary_data=is_binary)
    return output if output.binary_data is not None else replaced(output, binary_data=is_binary)
