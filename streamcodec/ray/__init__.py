"""The V2 service in replicas of Ray Serve, on the bundled server or as an ASGI application. It needs Ray Serve."""

from streamcodec.ray.autoscaling import LoadPolicy
from streamcodec.ray.ingress import app_builder
from streamcodec.ray.replica import Replica

__all__ = ["LoadPolicy", "Replica", "app_builder"]
