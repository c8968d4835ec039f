"""A cluster of one node, on the loopback interface: `PYTHON -m tests.ray.program FOLDER PROXY_PORT`.

Runs in an environment that has Ray Serve. Each line of its input is a command, and each line of its output the answer;
other lines are Ray's. FOLDER is for Ray's files, and has to be short: sockets are below it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_ENABLE_HA_PROXY": "0"}
os.environ["RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S"] = "1"

import ray  # the settings above are read by then
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from streamcodec.ray import LoadPolicy, app_builder
from tests.ray.models import Observed, make_service, naive

ANSWER = "= "
_ROOT = Path(__file__).parents[2]
_SCALING = {
    "min_replicas": 1,
    "upscale_delay_s": 1,
    "downscale_delay_s": 3,
    "look_back_period_s": 2,
}


def deploy(*, way: str, replicas: int, port: int, memory: int, most: int = 0) -> None:
    """Run one way, or its next version; return when all replicas are ready."""
    if way == "example":
        example = runpy.run_path(str(_ROOT / "docs" / "examples" / "ray_replica.py"))
        serve.run(example["deployment"].bind(example["make_service"], port=port), name=way, route_prefix=None)
        return
    options: dict[str, Any] = {
        "name": way,
        "max_ongoing_requests": 64,
        "graceful_shutdown_timeout_s": 20,
        "ray_actor_options": {"num_cpus": 0.1, "memory": memory},
    }
    if most:
        policy = AutoscalingPolicy(policy_function=LoadPolicy, policy_kwargs={"target_load": 0.3})
        options["autoscaling_config"] = AutoscalingConfig(policy=policy, max_replicas=most, **_SCALING)
    else:
        options["num_replicas"] = replicas
    if way == "shared":
        bound = serve.deployment(Observed).options(**options).bind(make_service, port=port)
        serve.run(bound, name=way, route_prefix=None)
        return
    builder = app_builder(make_service) if way == "ingress" else naive
    serve.run(serve.deployment(serve.ingress(builder)()).options(**options).bind(), name=way, route_prefix=f"/{way}")


def state() -> dict[str, int]:
    """What a replica of the shared port has."""
    found: dict[str, int] = serve.get_app_handle("shared").state.remote().result(timeout_s=20)
    return found


def run(command: dict[str, Any]) -> object:
    acts: dict[str, Callable[..., object]] = {"deploy": deploy, "delete": serve.delete, "state": state}
    return acts[command.pop("do")](**command)


def answer(found: object) -> None:
    sys.stdout.write(f"{ANSWER}{json.dumps(found)}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve commands until there are no more."""
    folder, port = sys.argv[1], int(sys.argv[2])
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=1 << 30,
        _temp_dir=folder,
        logging_level="warning",
        runtime_env={"env_vars": {"PYTHONPATH": str(_ROOT)}},
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": 300})
        answer(None)
        for line in sys.stdin:
            try:
                found = run(json.loads(line))
            except Exception as error:  # noqa: BLE001 - told to who has asked
                found = {"error": f"{type(error).__name__}: {error}"}
            answer(found)
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
