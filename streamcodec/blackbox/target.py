"""Target: the model that is examined, and good requests for it.

A probe tests one thing, so everything else in the request has to be right. Else the server would refuse it for another
reason, and the probe would show nothing. Names, datatypes and shapes come from the model's metadata. A size that the
metadata leave open is small. The values are small numbers that any model should accept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.messages import AfterSending, Assembly, RawRequest
from streamcodec.engine.datatypes import DATATYPES
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD

HEALTH: Final = "/v2/health/live"
"""Path of the health check."""


class NotApplicableError(Exception):
    """A probe has no meaning for this model; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model that is examined."""

    authority: str
    """Value of the `Host` field."""
    prefix: str
    """Path in front of `/v2`."""
    model: str
    """Name of the model in the path, percent-encoded."""
    version: str | None = None
    """Version of the model in the path, percent-encoded; None for the server's choice."""
    inputs: tuple[Input, ...]
    is_declared: bool = True
    """Whether the inputs are those of the model's metadata."""
    has_binary: bool = True
    """Whether the server takes binary tensors."""
    has_json: bool = True
    """Whether the model accepts JSON data."""
    is_varied: bool = False
    """Whether good requests have other values than the usual ones; see `Input.varied`."""

    @property
    def resource(self) -> str:
        """Path of the model, after the prefix."""
        version = "" if self.version is None else f"/versions/{self.version}"
        return f"/v2/models/{self.model}{version}"

    def find(self, suits: Callable[[Input], bool], what: str) -> Input:
        """Return the first input that has elements and satisfies the condition.

        Raises:
            NotApplicableError: there is none.
        """
        return _first([each for each in self.inputs if each.has_elements and suits(each)], what)

    def fixed(self) -> Input:
        """Return an input whose items have one size, of more than one byte if there is one."""
        kinds = [each for each in self.inputs if each.has_elements and not each.datatype.is_bytes]
        wide = [each for each in kinds if each.datatype.itemsize > 1]
        return _first(wide or kinds, "with items of one size")

    def of(self, *names: str) -> Input:
        """Return an input of one of these datatypes."""
        return self.find(lambda each: each.datatype.name in names, f"of {' or '.join(names)}")

    def open(self, *names: str) -> Input:
        """Return an input (of one of these datatypes) that can have any size."""
        what = f"of {' or '.join(names)} of any size" if names else "of any size"
        return self.find(lambda each: each.is_open and each.datatype.name in (names or DATATYPES), what)

    def binary(self, probed: Input | None = None, shape: Sequence[int] | None = None) -> Assembly:
        """Return a good request with binary tensors.

        Args:
            probed: the input that the probe is about; by default the first one with elements. It comes last, so that an
                error in it does not change another input, which the server would notice.
            shape: shape of that input; by default one that the model accepts.

        Raises:
            NotApplicableError: the server does not take binary tensors.
        """
        if not self.has_binary:
            raise NotApplicableError("the server takes no binary tensors")
        return self._message(probed, shape, is_binary=True)

    def json(self, probed: Input | None = None, shape: Sequence[int] | None = None) -> Assembly:
        """Return a good request with JSON data; for the arguments see `binary`.

        Raises:
            NotApplicableError: the model cannot be given JSON data.
        """
        if not self.has_json or not all(each.datatype.has_json for each in self.inputs):
            raise NotApplicableError("the model cannot be given JSON data")
        return self._message(probed, shape, is_binary=False)

    def any_form(self) -> Assembly:
        """Return a good request in a form that the server accepts; binary if it accepts both."""
        return self.binary() if self.has_binary else self.json()

    def send(
        self,
        message: Assembly,
        *fields: str,
        text: bytes | None = None,
        payload: bytes | None = None,
        length: str | None = "{n}",
        checks: bool = False,
    ) -> RawRequest:
        """Put a message together.

        Args:
            message: the message.
            fields: more lines of the head.
            text: the JSON header to be sent instead of the message's header.
            payload: the bytes to be sent after it instead of the message's tensors.
            length: value of `Inference-Header-Content-Length`, where `{n}` is the true length; None for no such field.
                A request without binary tensors never has the field.
            checks: whether the message is valid, so that an echo must have its tensors.
        """
        text = message.text if text is None else text
        payload = message.payload if payload is None else payload
        if message.is_binary:
            lengths = () if length is None else (f"{HEADER_LENGTH_FIELD}: {length.format(n=len(text))}",)
            fields = ("Content-Type: application/octet-stream", *lengths, *fields)
        else:
            fields = ("Content-Type: application/json", *fields)
        return self.post(text + payload, *fields, tensors=message.tensors if checks else None)

    def post(self, body: bytes, *fields: str, tensors: tuple[bytes, ...] | None = None) -> RawRequest:
        """Return a request with a valid head and any body."""
        return RawRequest(pieces=(self.head(f"Content-Length: {len(body)}", *fields) + body,), tensors=tensors)

    def head(self, *fields: str, method: str = "POST", path: str | None = None, version: str = "1.1") -> bytes:
        """Return a head, of an inference request if no other path is given."""
        path = f"{self.resource}/infer" if path is None else path
        line = f"{method} {self.prefix}{path} HTTP/{version}"
        return "\r\n".join((line, f"Host: {self.authority}", *fields, "", "")).encode("latin-1")

    def reframe(
        self,
        request: RawRequest,
        *fields: str,
        body: bytes | None = None,
        path: str | None = None,
        version: str = "1.1",
    ) -> RawRequest:
        """Return a request with other lines instead of its `Content-Length`, where `{n}` is the length of the body.

        Args:
            request: a request made by `send` or `post`.
            fields: the lines.
            body: the bytes to be sent instead of its body.
            path: as for `head`.
            version: as for `head`.
        """
        lines = request.head.decode("latin-1").split("\r\n")[2:]
        kept = (line for line in lines if line and not line.startswith("Content-Length"))
        body = request.body if body is None else body
        framing = (field.format(n=len(body)) for field in fields)
        data = self.head(*kept, *framing, path=path, version=version) + body
        return RawRequest(pieces=(data,), tensors=request.tensors)

    def get(self, path: str) -> RawRequest:
        """Return a request for a resource."""
        return RawRequest(pieces=(self.head(method="GET", path=path),))

    def cut(self, request: RawRequest, nbytes: int, ending: AfterSending = AfterSending.CUTS) -> RawRequest:
        """Return the first bytes of a request, after which no more come."""
        return RawRequest(pieces=(request.data[:nbytes],), ending=ending)

    def _message(self, probed: Input | None, shape: Sequence[int] | None, *, is_binary: bool) -> Assembly:
        probed = self.find(lambda _: True, "with elements") if probed is None else probed
        entries, tensors = [], []
        for each in (*(other for other in self.inputs if other is not probed), probed):
            its_shape = list(shape) if shape is not None and each is probed else each.sample_shape()
            entry: dict[str, Any] = {"name": each.name, "datatype": each.datatype.name, "shape": its_shape}
            count = math.prod(its_shape)
            values = each.varied(count) if self.is_varied else each.sample(count)
            tensors.append(each.to_bytes(values))
            if is_binary:
                entry["parameters"] = {"binary_data_size": len(tensors[-1])}
            else:
                entry["data"] = each.to_json(values)
            entries.append(entry)
        document: dict[str, Any] = {"inputs": entries}
        if self.has_binary:
            document["parameters"] = {"binary_data_output": True}
        return Assembly(document=document, tensors=tuple(tensors), is_binary=is_binary, probed=probed)


def _first(inputs: Sequence[Input], what: str) -> Input:
    if not inputs:
        raise NotApplicableError(f"the model has no input {what}")
    return inputs[0]
