"""Calls: what can be asked of a V2 server, as exchanges that are ready to start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from streamcodec.client.exchange import Compression, Exchange, Placing
from streamcodec.core.elements import Elements
from streamcodec.core.encoder import Tensor, encode_raw_request, encode_request
from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.limits import Limits
from streamcodec.core.model import RequestedOutput
from streamcodec.core.record import replaced
from streamcodec.core.rows import Rows

Values = npt.ArrayLike | Rows | Elements
"""What a tensor can be given as: what numpy makes an array of, BYTES over one buffer, or windows of rows to come."""


def get(path: str, limits: Limits) -> Exchange:
    """Ask for a document, or for a status alone."""
    return Exchange("GET", path, None, limits)


def infer(
    model: str,
    inputs: Mapping[str, Values],
    *,
    outputs: Iterable[str | RequestedOutput] | None,
    request_id: str | None,
    parameters: Mapping[str, Any] | None,
    version: str | None,
    is_binary: bool,
    limits: Limits,
    compression: Compression,
    placing: Placing,
) -> Exchange:
    """Ask a model; see `Client.infer` for the arguments."""
    tensors = [Tensor(name=name, array=_array(value), is_binary=is_binary) for name, value in inputs.items()]
    requested = [_with_form(output, is_binary=is_binary) for output in outputs or ()]
    message = encode_request(
        tensors,
        outputs=requested or None,
        request_id=request_id,
        parameters={**(parameters or {}), "binary_data_output": is_binary},
    )
    return Exchange(
        "POST", f"{model_path(model, version)}/infer", message, limits, compression=compression, placing=placing
    )


def infer_raw(model: str, tensor: Values, *, version: str | None, limits: Limits, compression: Compression) -> Exchange:
    """Ask a model with a raw binary request; see `Client.infer_raw` for the arguments."""
    # Its length is all that says what the tensor is; so nobody calls `compress`.
    message = encode_raw_request(_array(tensor))
    return Exchange("POST", f"{model_path(model, version)}/infer", message, limits, compression=compression)


def model_path(model: str, version: str | None) -> str:
    """Return the path of a model, or of one of its versions.

    Raises:
        LocalProtocolError: the name or version has a lone surrogate, or means another path: it is empty, or dots.
    """
    try:
        path = f"/v2/models/{_segment(model)}"
        return path if version is None else f"{path}/versions/{_segment(version)}"
    except UnicodeEncodeError:
        raise LocalProtocolError("the name or version of a model has a lone surrogate, which no URL can hold") from None


def _segment(name: str) -> str:
    """Percent-encode a name; of dots alone, servers and proxies make a step upwards, encoded or not."""
    if name in {"", ".", ".."}:
        raise LocalProtocolError(f"{name!r} as the name or version of a model would be another path")
    return quote(name, safe="")


def _array(values: Values) -> np.ndarray[Any, Any] | Rows | Elements:
    return values if isinstance(values, Rows | Elements) else np.asarray(values)


def _with_form(output: str | RequestedOutput, *, is_binary: bool) -> RequestedOutput:
    """Let an output say its form: KServe and Triton ignore `binary_data_output` when outputs are listed."""
    if not isinstance(output, RequestedOutput):
        return RequestedOutput(name=output, binary_data=is_binary)
    return output if output.binary_data is not None else replaced(output, binary_data=is_binary)
