"""A model on Ray Serve, received by streamcodec in each replica: `serve run ray_replica:application`."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from streamcodec.ray import LoadPolicy, Replica
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service


def double(request: InferenceRequest) -> dict[str, np.ndarray[Any, Any]]:
    return {"y": request.inputs["x"] * 2}


def make_service() -> Service:
    return Service(ModelRegistry.of([Model(name="double", predict=double)]))  # loaded in each replica


policy = AutoscalingPolicy(policy_function=LoadPolicy, policy_kwargs={"target_load": 0.6})
deployment = serve.deployment(Replica).options(
    ray_actor_options={"num_cpus": 0.5, "memory": 1 << 30},
    graceful_shutdown_timeout_s=20,
    health_check_period_s=2,
    autoscaling_config=AutoscalingConfig(min_replicas=1, max_replicas=4, policy=policy),
)
application = deployment.bind(make_service, host="127.0.0.1", port=8000)

if __name__ == "__main__":
    serve.run(application, route_prefix=None, blocking=True)
