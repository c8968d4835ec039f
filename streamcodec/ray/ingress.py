"""Ingress: the service as an ASGI application under `serve.ingress`, behind Ray's own proxies.

Ray routes, counts and scales as for any application. Bodies pass through Ray's proxy, which does not hold a fast sender
back: what a slow application has not received yet is kept in the memory of its replica. So a body of any size may stand
there, and only Ray's `max_ongoing_requests` limits how many. The budget of the options limits what the application
takes. `Replica` has neither the copies nor this gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamcodec.asgi import App
from streamcodec.ray.resources import replica_options
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Observer, Service


def app_builder(
    make_service: Callable[[], Service],
    options: ServerOptions | None = None,
    *,
    make_observers: Callable[[Service], Iterable[Observer]] = lambda _: (),
) -> Callable[[], App]:
    """Return what `serve.ingress` wants: a function that makes the application, in each replica.

    Args:
        make_service: makes what is served, with its models; called once in each replica.
        options: how to serve it. None to take half of the memory that Ray has reserved for the replica for requests.
        make_observers: makes those who are told about all requests.

    Returns:
        A function that raises `LocalProtocolError` if there are no options and no reserved memory.
    """

    def build() -> App:
        service = make_service()
        return App(service, replica_options(options), observer=make_observers(service))

    return build
