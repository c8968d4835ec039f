# MicroPython has no typing.
# ruff: noqa: ANN001, ANN201, ANN202, UP032
# mypy: ignore-errors
"""Sends tensors from a microcontroller to a model, and reads its outputs. Runs on MicroPython and on CPython.

It needs nothing but a stream, as MicroPython's sockets are: `write`, `readline` and `readinto`. A tensor is sent in
pieces, so it need not fit into memory. An answer takes no more memory than `max_bytes`. The protocol is the Binary
Tensor Data Extension of the V2 inference protocol::

    import socket
    sock = socket.socket()
    sock.connect(socket.getaddrinfo("192.168.1.10", 8000)[0][-1])
    outputs = infer(sock, "192.168.1.10", "net", [("x", "FP32", [1, 512], read_sensor())])
"""

import json

SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "FP16": 2, "BF16": 2, "UINT16": 2, "INT16": 2}
SIZES.update({"FP32": 4, "UINT32": 4, "INT32": 4, "FP64": 8, "UINT64": 8, "INT64": 8})

_MOST_LINES = 64
_OK = 200


class ServerError(Exception):
    """The server has refused the request: its status, and its text."""


def infer(stream, host, model, inputs, max_bytes=16384):
    """Send a request, and return the outputs by name: datatype, shape and bytes.

    Args:
        stream: connected to the server.
        host: its name, for the head.
        model: name of the model.
        inputs: for each its name, datatype, shape, and its bytes, little-endian: an iterable of pieces.
        max_bytes: most bytes of the answer.
    """
    send(stream, host, model, inputs)
    return receive(stream, max_bytes)


def send(stream, host, model, inputs):
    """Send a request; see `infer`."""
    tensors, total = [], 0
    for name, datatype, shape, _ in inputs:
        nbytes = SIZES[datatype]
        for size in shape:
            nbytes *= size
        size = {"binary_data_size": nbytes}
        tensors.append({"name": name, "datatype": datatype, "shape": shape, "parameters": size})
        total += nbytes
    header = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    head = (
        "POST /v2/models/{}/infer HTTP/1.1\r\nHost: {}\r\nContent-Type: application/octet-stream\r\n"
        "Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n"
    )
    _write(stream, head.format(model, host, len(header), len(header) + total).encode())
    _write(stream, header)
    for tensor, (name, _, _, pieces) in zip(tensors, inputs):  # noqa: B905 - MicroPython has no `strict`
        missing = tensor["parameters"]["binary_data_size"]
        for piece in pieces:
            missing -= len(piece)
            if missing < 0:
                raise ValueError("input {} has more bytes than its shape says".format(name))
            _write(stream, piece)
        if missing:
            raise ValueError("input {} lacks {} bytes".format(name, missing))


def receive(stream, max_bytes=16384):
    """Read the answer; see `infer`."""
    status, fields = _head(stream)
    if "content-length" not in fields:
        raise ValueError("the server does not say how long its answer is")
    total = int(fields["content-length"])
    if total > max_bytes:
        raise ValueError("the answer has {} bytes, more than max_bytes".format(total))
    length = int(fields.get("inference-header-content-length", total))
    if not 0 <= length <= total:
        raise ValueError("the header of the answer is longer than the answer")
    text = _read(stream, length)
    if status != _OK:
        raise ServerError(status, bytes(text).decode())
    outputs, total = {}, total - length
    for tensor in json.loads(bytes(text)).get("outputs", []):
        nbytes = tensor.get("parameters", {}).get("binary_data_size")
        if nbytes is None:
            data = tensor.get("data")  # the server has answered in JSON
        else:
            total -= nbytes
            if nbytes < 0 or total < 0:
                raise ValueError("the outputs are longer than the answer")
            data = _read(stream, nbytes)
        outputs[tensor["name"]] = (tensor["datatype"], tensor["shape"], data)
    return outputs


def _head(stream):
    """Return the status, and the fields by their lower-case names."""
    line = stream.readline()
    if not line.startswith(b"HTTP/1."):
        raise OSError("no answer of HTTP")
    status = int(line[9:12])
    fields = {}
    for _ in range(_MOST_LINES):
        line = stream.readline()
        if line in (b"\r\n", b"\n"):
            return status, fields
        name, _, value = line.decode().partition(":")
        fields[name.lower()] = value.strip()
    raise ValueError("the head of the answer is too long")


def _read(stream, nbytes):
    data = bytearray(nbytes)
    view, filled = memoryview(data), 0
    while filled < nbytes:
        count = stream.readinto(view[filled:])
        if not count:
            raise OSError("the connection ended within the answer")
        filled += count
    return data


def _write(stream, data):
    """Write all of it: a stream may take a part."""
    view = memoryview(data)
    while len(view) > 0:
        count = stream.write(view)
        view = view[len(view) if count is None else count :]
