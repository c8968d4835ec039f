"""Requests in progress that are lost when a server ends, killed and stopped: `python stopped_server.py`."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
from measured import MIB, table

from streamcodec import MessageError
from streamcodec.client import Client

CLIENTS = 4
x = np.ones((4, MIB), np.float32)


def lost(how: signal.Signals) -> tuple[int, int]:
    """Return how many requests were answered, and how many of those that had begun before the signal were not."""
    command = [sys.executable, "-m", "streamcodec", "serve", "--port", "0", "--no-access-log"]
    answered, failed, told = [], [], threading.Event()

    def ask(url: str) -> None:
        with Client(url) as client:
            while not told.is_set():
                try:
                    answered.append(client.infer("identity", {"x": x}).header.model_name)
                except (OSError, MessageError) as error:
                    failed.append(error)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        threads = [threading.Thread(target=ask, args=(url,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        told.set()
        process.send_signal(how)
        for thread in threads:
            thread.join()
    return len(answered), len(failed)


if __name__ == "__main__":
    rows = [("SIGKILL", *lost(signal.SIGKILL)), ("SIGTERM", *lost(signal.SIGTERM))]
    table(("", "answered", "lost"), [(name, str(answered), str(failed)) for name, answered, failed in rows])
