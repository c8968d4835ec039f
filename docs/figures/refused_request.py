"""What numpy and `streamcodec inspect` say about a wrong byte of a message: `python refused_request.py`."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from streamcodec import encode_request

message = encode_request({"scores": np.ones((2, 3), np.float32)})
wrong = b"".join(message.buffers).replace(b'"shape":[2,3]', b'"shape":[2,4]')


def before() -> str:
    shape = json.loads(wrong[: message.header_length])["inputs"][0]["shape"]
    try:
        np.frombuffer(wrong[message.header_length :], np.float32).reshape(shape)
    except ValueError as error:
        return str(error)
    return "nothing"


def after() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "request.bin")
        path.write_bytes(wrong)
        command = [sys.executable, "-m", "streamcodec", "inspect", str(path), "--json"]
        command += ["--header-length", str(message.header_length)]
        found = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)["failure"]
    return f"{found['code']}: {found['message']}; at {found['path']}"


if __name__ == "__main__":
    print(f"numpy    {before()}\ninspect  {after()}")
