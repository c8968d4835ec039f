"""The mean of each tensor in .npy, .safetensors and .frames of any size, in windows: `python batch_read.py FILE...`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamcodec import EndOfMessage, Placement, TensorSpec, WindowReceived, Windows
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import EndOfStream, FrameReader, Skipped, request_frame_decoder
from streamcodec.transports.files import next_event


def windows(_: TensorSpec) -> Placement:
    return Windows(max_window_bytes=1 << 20)


SOURCES: dict[str, Callable[[], Any]] = {
    ".npy": lambda: npy.decoder(place=windows),
    ".safetensors": lambda: safetensors.decoder(place=windows),
    ".frames": lambda: FrameReader(lambda: request_frame_decoder(place=windows)),  # one after the other
}


def means(path: Path) -> Iterator[tuple[str, object]]:
    source, total, last = SOURCES[path.suffix](), 0.0, EndOfStream if path.suffix == ".frames" else EndOfMessage
    with path.open("rb", buffering=0) as file:
        while not isinstance(event := next_event(file, source), last):
            if isinstance(event, WindowReceived):
                total += event.array.sum(dtype="f8")
                if event.is_last:
                    yield event.spec.name, total / event.spec.count
                    total = 0.0
            elif isinstance(event, Skipped):  # a frame that is damaged, whose means so far do not count
                yield "skipped", event.error


for path in map(Path, sys.argv[1:]):
    for name, mean in means(path):
        print(path.name, name, mean)
