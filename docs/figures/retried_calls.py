"""256 MiB to a server that is busy twice, by tritonclient and by our client: `python retried_calls.py [MIB]`."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import tritonclient.http as httpclient
from measured import MIB, compare

from streamcodec.client import Client

x = np.ones((int(sys.argv[1]) if len(sys.argv) > 1 else 256, MIB // 4), np.float32)


class Busy(BaseHTTPRequestHandler):
    """Reads each request to its end, and refuses two of three."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        left, memory = int(self.headers["Content-Length"]), memoryview(bytearray(MIB))
        while left:
            left -= self.rfile.readinto(memory[: min(left, MIB)])
        Busy.count += 1
        is_busy = Busy.count % 3 > 0
        outputs = b'[{"name":"y","shape":[1],"datatype":"FP32","data":[1.5]}]'
        body = b'{"error":"busy"}' if is_busy else b'{"model_name":"m","outputs":%b}' % outputs
        self.send_response(503 if is_busy else 200)
        self.send_header("Content-Length", str(len(body)))
        if is_busy:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        pass


def theirs(address: str) -> float:
    client = httpclient.InferenceServerClient(address, network_timeout=60.0)
    given = httpclient.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    while True:
        try:
            return float(client.infer("m", [given]).as_numpy("y")[0])
        except httpclient.InferenceServerException as error:
            if error.status() != "503":
                raise


def ours(address: str) -> float:
    with Client(f"http://{address}", retries=2) as client:
        return float(client.infer("m", {"x": x})["y"][0])


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"127.0.0.1:{server.server_port}"
        compare({"tritonclient": lambda: theirs(at), "streamcodec.client": lambda: ours(at)}, rounds=1)
        server.shutdown()
