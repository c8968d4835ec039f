"""Constant memory: a tensor much larger than all memory that the process may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
import numpy as np
import streamcodec as sc

ROWS, COLUMNS, MIB = 1024, 262_144, 1 << 20

def body(message):
    '''Yield the header and then the rows, each as often its own number as it has columns, in awkward pieces.'''
    yield message.header
    row = np.empty(COLUMNS, "<f4")
    for number in range(ROWS):
        row[:] = number
        data = memoryview(row).cast("B")
        for start in range(0, len(data), 400_001):
            yield data[start : start + 400_001]

class Message:
    header = (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,%d],"parameters":{"binary_data_size":%d}}]}'
              % (ROWS, COLUMNS, ROWS * COLUMNS * 4))
    body_length = len(header) + ROWS * COLUMNS * 4

def size():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize"))

allowed = size() + 64 * MIB
resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
windows = sc.Windows(max_window_bytes=MIB, buffer_count=int(sys.argv[1]))
decoder = sc.request_decoder(
    header_length=len(Message.header), body_length=Message.body_length, place=lambda spec: windows
)
rows, wrong = 0, 0

def consume():
    global rows, wrong
    while not decoder.is_complete and (event := decoder.next_event()) is not sc.NEED_DATA:
        if isinstance(event, sc.WindowReceived):
            assert event.row == rows
            for row in event.array:
                wrong += int(row.min() != rows or row.max() != rows)
                rows += 1

for piece in body(Message):
    while piece:
        piece = piece[decoder.feed(piece) :]
        consume()
try:
    np.empty(ROWS * COLUMNS, "<f4")
except MemoryError:
    print(rows, wrong, decoder.is_complete, decoder.offset == Message.body_length)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the size of the process is read from /proc")
@pytest.mark.parametrize("buffer_count", [1, 2])
def test_a_gibibyte_passes_through_an_address_space_of_64_mebibytes_more_than_the_import(buffer_count: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(buffer_count)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout == "1024 0 True True\n", run.stderr
