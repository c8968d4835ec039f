"""Extensions: what Triton's extensions of the protocol add to requests: parameters with a meaning, and a URL's query.

`streamcodec.tritonclient` writes its requests with the same functions.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from streamcodec.engine.arguments import check_kind

QueryParams = Mapping[str, Any]
"""Parameters of a URL; a list is several values of one name."""


def with_query(path: str, query_params: QueryParams | None) -> str:
    """Return a path with parameters of the URL."""
    if not query_params:
        return path
    pairs = [
        (name, each) for name, value in query_params.items() for each in (value if isinstance(value, list) else [value])
    ]
    return f"{path}?{urlencode(pairs)}"


def with_scheduling(
    parameters: Mapping[str, Any] | None,
    sequence_id: int | str,
    *,
    sequence_start: bool,
    sequence_end: bool,
    priority: int,
) -> dict[str, Any]:
    """Return the parameters of an inference request, with those that a server's scheduler reads.

    Args:
        parameters: the others.
        sequence_id: of the sequence that the request belongs to; 0 or "" for none.
        sequence_start: whether it is the first of its sequence.
        sequence_end: whether it is the last of its sequence.
        priority: 1 for the highest; 0 for the model's default.

    Raises:
        LocalProtocolError: the others are no mapping.
    """
    found: dict[str, Any] = {}
    if parameters is not None:
        check_kind(parameters, Mapping, "parameters are values by name, as {'temperature': 0.5}")
        found |= parameters
    if sequence_id not in (0, ""):
        found |= {"sequence_id": sequence_id, "sequence_start": sequence_start, "sequence_end": sequence_end}
    if priority != 0:
        found["priority"] = priority
    return found


def load_parameters(config: str | None, files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the parameters of a request to load a model.

    Args:
        config: the configuration, as JSON; None for that of the repository.
        files: content by the names of parameters, as `file:1/model.onnx`.
    """
    parameters = {} if config is None else {"config": config}
    return parameters | {name: b64encode(content).decode() for name, content in files.items()}
