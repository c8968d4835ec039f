"""Asking: the options about an inference request that `infer` and `encode` share."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any, Final

from streamcodec.cli.arguments import by_name
from streamcodec.cli.fields import add_header
from streamcodec.cli.inferring.trust import add_trust
from streamcodec.client.exchange import Compression
from streamcodec.engine.compression.inflate import ENCODINGS
from streamcodec.formats.v2.fields import SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE

_MEDIA_TYPES: Final = {"sagemaker": SAGEMAKER_MEDIA_TYPE, "vertex-ai": VERTEX_AI_MEDIA_TYPE}


def add_asking(group: argparse._ArgumentGroup) -> None:
    """Add the options about the request, except its inputs."""
    group.add_argument(
        "--random", dest="is_random", action="store_true", help="make the other inputs by the model's metadata"
    )
    group.add_argument(
        "--output",
        dest="outputs",
        action="append",
        metavar="NAME",
        help="a requested output; give one for each (default: all)",
    )
    group.add_argument("--model-version", metavar="VERSION", help="of the model (default: the server's choice)")
    group.add_argument("--id", dest="request_id", metavar="ID", help="of the request, for the server's log")
    group.add_argument(
        "--parameter",
        dest="parameters",
        action="append",
        default=[],
        type=_parameter,
        metavar="NAME=VALUE",
        help="a parameter of the request, for the model; a number, true and false are that, all else is text; give one "
        "for each",
    )
    group.add_argument("--json", dest="is_json", action="store_true", help="send tensors as JSON, in both directions")
    add_header(group)
    add_trust(group)
    group.add_argument(
        "--media-type",
        choices=_MEDIA_TYPES,
        help="give the length of the JSON header in Content-Type, for gateways of Amazon SageMaker or Vertex AI "
        "(default: in Inference-Header-Content-Length)",
    )


def add_compression(group: argparse._ArgumentGroup) -> None:
    """Add the options about compression."""
    group.add_argument(
        "--compress",
        action="store_const",
        const="gzip",
        help="gzip in both directions, as with the next two options",
    )
    group.add_argument(
        "--request-compression",
        choices=ENCODINGS,
        help="compress the request in memory, if that makes it smaller; for slow networks (default: do not)",
    )
    group.add_argument(
        "--response-compression",
        choices=ENCODINGS,
        help="ask the server to compress its answer; it need not do so (default: do not ask)",
    )


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `whole_request` for the options of `add_asking`, without the fields."""
    return {
        "version": options.model_version,
        "outputs": options.outputs,
        "request_id": options.request_id,
        "parameters": parameters_of(options),
        "is_binary": not options.is_json,
        "media_type": media_type_of(options),
    }


def parameters_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the request."""
    return by_name(options, "--parameter", options.parameters)


def media_type_of(options: argparse.Namespace) -> str | None:
    """Return the media type of the request; None for the usual one."""
    return _MEDIA_TYPES.get(options.media_type)


def compression_of(options: argparse.Namespace) -> Compression:
    """Return how request and answer are compressed."""
    return Compression(
        request=options.request_compression or options.compress,
        response=options.response_compression or options.compress,
    )


def _parameter(text: str) -> tuple[str, str | float | bool]:
    """Read `NAME=VALUE`."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    if isinstance(found, float):  # Python reads NaN, which JSON does not have
        return name, found if math.isfinite(found) else value
    return name, found if isinstance(found, bool | int | str) else value
