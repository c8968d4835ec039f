"""What `streamcodec fuzz` finds in a server of 20 lines, and in ours: `python fuzzed_server.py`."""

import json
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from measured import server, table

from streamcodec import encode_response


class Before(BaseHTTPRequestHandler):
    """Answers its input, as many first versions of such a server do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer({}, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        length = int(self.headers["Inference-Header-Content-Length"])
        given = json.loads(body[:length])["inputs"][0]
        x = np.frombuffer(body[length:], np.float32).reshape(given["shape"])
        message = encode_response({given["name"]: x}, model_name="identity")
        self.answer(dict(message.headers), b"".join(message.buffers))

    def answer(self, fields: dict[str, str], body: bytes) -> None:
        self.send_response(200)
        for name, value in (fields | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


def examine(url: str) -> tuple[int, int]:
    """Return how many probes were sent, and how many of them found something."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fuzz.json")
        command = [sys.executable, "-m", "streamcodec", "fuzz", url, "--model", "identity", "--input", "x:FP32:-1"]
        command += ["--only", "sizes/*", "--mutations", "0", "--timeout", "1", "--json", str(path)]
        subprocess.run(command, capture_output=True, check=False)
        probes = json.loads(path.read_bytes())["probes"]
    return len(probes), sum(probe["state"] == "found" for probe in probes)


if __name__ == "__main__":
    listener = Quiet(("127.0.0.1", 0), Before)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    found = {"http.server and numpy": examine(f"http://127.0.0.1:{listener.server_port}")}
    with server() as url:
        found["streamcodec serve"] = examine(url)
    table(("", "probes of sizes", "findings"), [(name, str(sent), str(bad)) for name, (sent, bad) in found.items()])
