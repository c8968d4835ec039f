"""A KServe model whose requests are received by streamcodec: `python kserve_model.py --http_port 8080 --workers 2`."""

import numpy as np
from kserve import InferRequest, InferResponse, Model, ModelServer

from streamcodec.kserve import arrays_of, infer_response, install


class Double(Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def predict(self, payload: InferRequest, *_: object) -> InferResponse:
        x = arrays_of(payload)["x"]  # or payload.inputs[0].as_numpy(), as in every KServe model: nothing is copied
        return infer_response(payload, {"y": np.multiply(x, 2)})


if __name__ == "__main__":
    server = ModelServer()
    install(server)
    server.start([Double("double")])
