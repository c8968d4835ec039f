"""Seeds of the headers: those of the decoder's messages, and texts in which the ways of reading could differ."""

from __future__ import annotations

from collections.abc import Iterator

from targets.case import Kind
from targets.header import Case

from seeds import decoder

_TENSOR = b'{"name":"x","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}'


def seeds() -> Iterator[tuple[str, Case]]:
    """Yield every seed with its name."""
    for name, text in _TEXTS.items():
        yield name, Case(text=b'{"inputs":[%b]}' % text)
        yield f"{name}-response", Case(text=b'{"outputs":[%b]}' % text, is_response=True)
    for name, case in decoder.seeds():
        if case.kind is Kind.REQUEST and not name.endswith(("-limited", "-response", "-open", "-headerless")):
            yield name, Case(text=case.message[: case.header_length])


_TEXTS = {
    "plain": _TENSOR,
    "plain-twice": _TENSOR + b"," + _TENSOR.replace(b'"x"', b'"y"'),
    "plain-spaces": _TENSOR.replace(b":", b" : ").replace(b",", b"\t,\r\n"),
    "plain-colons": _TENSOR.replace(b'"x"', b'"a:b\xc3\xa9:"'),
    "plain-colon-in-name": _TENSOR.replace(b'"x"', b'"x","a:":1,"a:":2'),
    "plain-member-twice": _TENSOR.replace(b'"x"', b'"x","name":"x"'),
    "plain-parameter-twice": _TENSOR.replace(b'_size":1', b'_size":1,"k":1,"k":2'),
    "plain-size-float": _TENSOR.replace(b":1}", b":1.0}"),
    "plain-size-true": _TENSOR.replace(b":1}", b":true}"),
    "plain-shape-true": _TENSOR.replace(b"[1]", b"[true]"),
    "plain-minus-zero": _TENSOR.replace(b":1}", b":-0}").replace(b"[1]", b"[0]"),
    "plain-escape": _TENSOR.replace(b'"x"', rb'"\u0078"'),
    "plain-surrogate": _TENSOR.replace(b'"x"', rb'"\ud800"'),
    "plain-pair": _TENSOR.replace(b'"x"', rb'"\\\ud83d\ude00"'),
    "plain-control": _TENSOR.replace(b'"x"', b'"\x1f"'),
    "plain-delete": _TENSOR.replace(b'"x"', b'"\x7f"'),
    "plain-nan": _TENSOR.replace(b'_size":1', b'_size":1,"k":NaN'),
    "plain-nested": _TENSOR.replace(b'_size":1', b'_size":1,"k":{"a":[{"a":1}],"b":{}}'),
    "numbers": b'{"name":"x","shape":[6],"datatype":"FP64","data":[0.1,1e-400,-0.0,5e-324,1.797693134862315e308,1e22]}',
    "integers": b'{"name":"x","shape":[2],"datatype":"UINT64","data":[18446744073709551615,9007199254740993]}',
    "nan-data": b'{"name":"x","shape":[3],"datatype":"FP32","data":[NaN,-Infinity,Infinity]}',
    "nulls": b'{"name":"x","shape":[2],"datatype":"FP32","data":[null,1]}',
    "texts": rb'{"name":"x","shape":[3],"datatype":"BYTES","data":["","\u0000a","\ud83d\ude00"]}',
    "one-comma-more": _TENSOR + b",",
    "text-behind": _TENSOR + b"]} {",
}
