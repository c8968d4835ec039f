"""Framing: the HTTP fields that describe the layout of the body.

`Inference-Header-Content-Length` divides a body into JSON and tensors. A wrong value would shift every tensor. So only
one plain decimal number is accepted, and everything else is refused. Above all, a malformed value is never read as 0,
which means a raw binary request.

Some cloud gateways do not forward this field. Their endpoints for Triton have the same number as a parameter of
`Content-Type`: `application/vnd.sagemaker-triton.binary+json;json-header-size=N`. The same strict rules hold there. If
a value contains the name of such a media type anywhere, it must be exactly this form, or it is refused. All other media
types are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from streamcodec.engine.arguments import not_field_values
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown

HEADER_LENGTH_FIELD: Final = "Inference-Header-Content-Length"
"""The name of the field in the specification. Field names are case-insensitive."""

_HEADER_LENGTH_NAME: Final = HEADER_LENGTH_FIELD.lower().encode()

SAGEMAKER_MEDIA_TYPE: Final = "application/vnd.sagemaker-triton.binary+json"
"""What Triton's endpoint for Amazon SageMaker reads and answers, with the parameter `json-header-size`."""

VERTEX_AI_MEDIA_TYPE: Final = "application/vnd.vertex-ai-triton.binary+json"
"""What Triton's endpoint for Vertex AI reads, with the parameter `json-header-size`; it answers with the field."""

_MEDIA_TYPES: Final = (SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE)

HEADER_SIZE_PARAMETER: Final = "json-header-size"
"""The parameter of both media types. Parameter names are case-insensitive."""

_MARK: Final = b"-triton.binary+json"
"""A part of both names, for a quick check of all other media types."""

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
_PARAMETER: Final = rb"[ \t]*+;[ \t]*+(?:(%b++)=(%b++|%b))?+" % (_TOKEN, _TOKEN, _QUOTED)
_NAME: Final = rb"(?<!%b)application/vnd\.(?:sagemaker|vertex-ai)-triton\.binary\+json(?!%b)" % (_TOKEN, _TOKEN)
"""RFC 9110, section 5.6.6. These patterns are compiled when the first such media type comes: few programs meet one.
Nothing is tried twice: what has matched is not given back (`*+`)."""

_MAX_MEDIA_TYPE_BYTES: Final = 2 << 10
_MAX_PARAMETERS: Final = 32
"""Of a media type that declares the length. Each costs a microsecond, and may have one byte."""

_MAX_DIGITS: Final = 19
"""Most digits of a length. They are enough for a 63-bit number, and `int` never gets a megabyte of digits."""


def parse_header_length(values: Sequence[bytes], content_types: Sequence[bytes] = ()) -> int | None:
    """Read how long the JSON header is, from a field of its own or from the media type.

    Args:
        values: values of all `Inference-Header-Content-Length` fields of a head, without the white space around them,
            as HTTP libraries return them.
        content_types: values of all `Content-Type` fields, likewise. Only `SAGEMAKER_MEDIA_TYPE` and
            `VERTEX_AI_MEDIA_TYPE` have a meaning.

    Returns:
        The length in bytes; None if neither declares it.

    Raises:
        RemoteProtocolError: `invalid-header-length`: a field is repeated, or does not have 1 to 19 decimal digits; the
            media type is wrong, see `parse_media_type`; or the two lengths differ.
        LocalProtocolError: the values are not a list of bytes.
    """
    try:
        return header_form(values, content_types)[0]
    except (AttributeError, TypeError):
        raise not_field_values() from None


class FieldValues(Protocol):
    """The fields of a head, as `streamcodec.http` has them."""

    def values(self, name: bytes, /) -> list[bytes]:
        """Return the values of all fields of that name (lower case), in order."""
        ...


def header_length_of(fields: FieldValues) -> int | None:
    """Return how long the JSON header is, from the fields of a head; see `parse_header_length`.

    Raises:
        RemoteProtocolError: `invalid-header-length`.
    """
    return header_form_of(fields)[0]


def header_form_of(fields: FieldValues) -> tuple[int | None, str | None]:
    """Return the length of the JSON header, and the media type if that declares it.

    Raises:
        RemoteProtocolError: `invalid-header-length`.
    """
    return header_form(fields.values(_HEADER_LENGTH_NAME), fields.values(b"content-type"))


def header_form(values: Sequence[bytes], content_types: Sequence[bytes]) -> tuple[int | None, str | None]:
    """Return the length of the JSON header, and the media type if that declares it; see `parse_header_length`."""
    length = None
    if values:
        if len(values) > 1:
            raise _invalid(f"{HEADER_LENGTH_FIELD} occurs {len(values)} times")
        length = _decimal(values[0], HEADER_LENGTH_FIELD)
    sized = parse_media_type(content_types)
    if sized is None:
        return length, None
    media_type, size = sized
    if length is not None and length != size:
        raise _invalid(f"{HEADER_LENGTH_FIELD} and the {HEADER_SIZE_PARAMETER} of Content-Type differ")
    return size, media_type


def parse_media_type(content_types: Sequence[bytes]) -> tuple[str, int] | None:
    """Read a media type that says how long the JSON header is.

    Args:
        content_types: of all `Content-Type` fields of a head.

    Returns:
        `SAGEMAKER_MEDIA_TYPE` or `VERTEX_AI_MEDIA_TYPE`, and the length in bytes; None if it is neither of them.

    Raises:
        RemoteProtocolError: `invalid-header-length`: a field has the name of one of the two, and is not the only one,
            has something in front of the name, parameters that are not well formed, or not exactly one
            `json-header-size` of 1 to 19 decimal digits; or it has more than 2 KiB or 32 parameters.
    """
    for value in content_types:
        if _MARK in value.lower() and (name := re.search(_NAME, value, re.IGNORECASE)) is not None:
            if len(content_types) > 1:
                raise _invalid(f"Content-Type occurs {len(content_types)} times")
            return name[0].decode().lower(), _header_size(value, name)
    return None


def checked_media_type(media_type: str) -> str:
    """Return a media type that declares the length of the JSON header.

    Raises:
        LocalProtocolError: it is another media type.
    """
    if media_type not in _MEDIA_TYPES:
        msg = f"the media types with the header's length are {' and '.join(_MEDIA_TYPES)}, not {shown(media_type)}"
        raise LocalProtocolError(msg)
    return media_type


def _header_size(value: bytes, name: re.Match[bytes]) -> int:
    """Return the length in the parameters of a media type."""
    if len(value) > _MAX_MEDIA_TYPE_BYTES:
        raise _invalid(f"Content-Type has more than {_MAX_MEDIA_TYPE_BYTES} bytes")
    if name.start():
        raise _invalid(f"Content-Type has something in front of {name[0].decode()}")
    sizes, position, count = [], name.end(), 0
    while position < len(value):
        count += 1
        if count > _MAX_PARAMETERS:
            raise _invalid(f"Content-Type has more than {_MAX_PARAMETERS} parameters")
        parameter = re.compile(_PARAMETER).match(value, position)
        if parameter is None:
            raise _invalid("the parameters of Content-Type are not well formed")
        position = parameter.end()
        if (parameter[1] or b"").lower() == HEADER_SIZE_PARAMETER.encode():
            sizes.append(parameter[2])
    if len(sizes) != 1:
        raise _invalid(f"the media type has the parameter {HEADER_SIZE_PARAMETER} {len(sizes)} times")
    size = sizes[0]
    if size.startswith(b'"'):  # a quoted string, and not a token (RFC 9110, section 5.6.4)
        size = re.sub(rb"\\(.)", rb"\1", size[1:-1], flags=re.DOTALL)
    return _decimal(size, HEADER_SIZE_PARAMETER)


def _decimal(digits: bytes, name: str) -> int:
    value: object = digits
    if isinstance(value, str):  # to which numbers of other alphabets are digits, too
        raise not_field_values()
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:  # for bytes, `isdigit` accepts only ASCII digits
        raise _invalid(f"{name} is not a plain decimal number")
    return int(digits)


def _invalid(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.INVALID_HEADER_LENGTH)
