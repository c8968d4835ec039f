"""Tensors of a safetensors file onto a GPU: `python gpu_upload.py FILE`. Without one, it stays in main memory.

The file is read straight into pinned memory, from which the GPU takes a tensor while the next one is being read.
"""

import sys
from pathlib import Path

import torch

from streamcodec import EndOfMessage, Into, Placement, TensorReceived, TensorSpec
from streamcodec.formats import safetensors
from streamcodec.transports.files import next_event

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")


def pinned(spec: TensorSpec) -> Placement:
    memory = torch.empty(spec.nbytes, dtype=torch.uint8, pin_memory=HAS_GPU).numpy()
    return Into(memory.view(spec.datatype.dtype).reshape(spec.shape))


def upload(path: str) -> dict[str, torch.Tensor]:
    decoder, tensors = safetensors.decoder(place=pinned), dict[str, torch.Tensor]()
    with Path(path).open("rb", buffering=0) as file:
        while not isinstance(event := next_event(file, decoder), EndOfMessage):
            if isinstance(event, TensorReceived):
                tensors[event.spec.name] = torch.from_numpy(event.array).to(DEVICE, non_blocking=True)
    return tensors


if __name__ == "__main__":
    for name, tensor in upload(sys.argv[1]).items():
        print(name, tuple(tensor.shape), tensor.dtype, tensor.device)
