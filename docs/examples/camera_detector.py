"""A detector for a camera recorder, as the plugins of Frigate are: each frame goes to a model on a V2 server.

The recorder calls `detect_raw` with each frame in which something moves, uint8 of shape (1, height, width, 3). It gets
20 detections, the best first: rows of class, score, and the box from 0 to 1 as y_min, x_min, y_max, x_max. Rows of
zeros are none. The model has one input of the frame's shape, and one output, FP32 of shape (n, 6), with these columns.

While the server is away or too slow, nothing is detected, and the recorder goes on. The log says so once, and when it
is over. In Frigate, a class that derives from `DetectionApi` and has a `type_key` passes settings and frames to this.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import numpy as np

from streamcodec import MessageError
from streamcodec.client import Client

MOST: Final = 20
COLUMNS: Final = 6

_log = logging.getLogger(__name__)


class V2Detector:
    """Detects objects with a model on a server."""

    def __init__(self, url: str, model: str, *, input_name: str = "frame", seconds: float = 1.0) -> None:
        """Prepare to ask a server; nothing is sent yet.

        Args:
            url: of the server, as `http://192.168.1.10:8000`.
            model: name of the model.
            input_name: of the model's input.
            seconds: for one frame, after which the recorder wants the next one.
        """
        self._client = Client(url, total_timeout=seconds)
        self._model = model
        self._input_name = input_name
        self._failure = ""

    def detect_raw(self, tensor_input: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the detections in a frame, float32 of shape (20, 6)."""
        detections = np.zeros((MOST, COLUMNS), np.float32)
        try:
            (found,) = self._client.infer(self._model, {self._input_name: tensor_input}).outputs.values()
        except (MessageError, OSError) as error:
            self._tell(f"nothing is detected: {error}")
            return detections
        self._tell("")
        best = found[np.argsort(-found[:, 1], kind="stable")[:MOST]]
        detections[: len(best)] = best
        return detections

    def close(self) -> None:
        """Close the connection to the server."""
        self._client.close()

    def _tell(self, failure: str) -> None:
        """Log that frames fail, or that they do so no longer: once, and not for each frame."""
        if bool(failure) is not bool(self._failure):
            _log.warning("%s", failure or "objects are detected again")
        self._failure = failure
