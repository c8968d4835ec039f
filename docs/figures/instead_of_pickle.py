"""An image of 32 MiB and a pose over a pair of sockets, as pickle and as a frame: `python instead_of_pickle.py`."""

import pickle
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from measured import compare

from streamcodec import EndOfMessage, TensorReceived, encode_request
from streamcodec.formats.frame import Kind, encode_frame, request_frame_decoder
from streamcodec.transports import sync

Array = np.ndarray[Any, Any]
tensors: dict[str, Array] = {"image": np.ones((32, 1024, 1024), np.uint8), "pose": np.eye(4)}


def send_pickle(sock: socket.socket) -> None:
    data = pickle.dumps(tensors)
    sock.sendall(len(data).to_bytes(8, "little") + data)


def receive_pickle(sock: socket.socket) -> dict[str, Array]:
    with sock.makefile("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        received: dict[str, Array] = pickle.loads(file.read(size))  # noqa: S301 - runs what the sender wants
    return received


def send_frame(sock: socket.socket) -> None:
    sync.send(sock, encode_frame(encode_request(tensors), Kind.REQUEST).buffers)


def receive_frame(sock: socket.socket) -> dict[str, Array]:
    decoder, received = request_frame_decoder(), {}
    while not isinstance(event := sync.next_event(sock, decoder), EndOfMessage):
        if isinstance(event, TensorReceived):
            received[event.spec.name] = event.array
    return received


def exchange(send: Callable[[socket.socket], None], receive: Callable[[socket.socket], dict[str, Array]]) -> int:
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=send, args=(here,))
        sender.start()
        received = receive(there)
        sender.join()
    return sum(array.nbytes for array in received.values())


if __name__ == "__main__":
    compare(
        {"pickle": lambda: exchange(send_pickle, receive_pickle), "frame": lambda: exchange(send_frame, receive_frame)}
    )
