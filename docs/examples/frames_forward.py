"""Forwards frames to a server, and its answers back, without numpy: `python frames_forward.py PORT HOST SERVER_PORT`.

Noise between frames is left out. A frame with a wrong checksum is told, and passed on: whoever receives it refuses it.
Each direction of a connection takes the memory of one piece, however long the frames are.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from functools import partial
from threading import Thread

from streamcodec import NEED_DATA, Limits
from streamcodec.formats.frame import EndOfStream, ForwardedFrame, FramePiece, FrameReader, Skipped

LIMITS = Limits(max_header_bytes=1 << 20, max_message_bytes=1 << 30)


def forward(source: socket.socket, sink: socket.socket) -> None:
    """Pass on the frames of one direction until it ends, or either side has gone."""
    frames = FrameReader(partial(ForwardedFrame, LIMITS, piece_bytes=16 << 10))
    with suppress(OSError):
        while not isinstance(event := frames.next_event(), EndOfStream):
            if event is NEED_DATA:
                if nbytes := source.recv_into(frames.get_buffer()):
                    frames.buffer_updated(nbytes)
                else:
                    frames.receive_eof()
            elif isinstance(event, FramePiece):
                sink.sendall(event.data)
            elif isinstance(event, Skipped):
                print(event.nbytes, "bytes:", event.error, file=sys.stderr, flush=True)
        sink.shutdown(socket.SHUT_WR)


def serve(client: socket.socket, address: tuple[str, int]) -> None:
    """Connect a client to the server, until both have ended."""
    with suppress(OSError), client, socket.create_connection(address) as server:
        answers = Thread(target=forward, args=(server, client))
        answers.start()
        forward(client, server)
        answers.join()


def main(port: int, host: str, server_port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Thread(target=serve, args=(client, (host, server_port)), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
