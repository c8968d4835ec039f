"""Servers: each kind, in this process, with short times and all of the models."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from aiohttp import web
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from streamcodec import asgi, wsgi
from streamcodec.aiohttp import App
from streamcodec.client import Timeout
from streamcodec.metrics.otel import Telemetry
from streamcodec.metrics.prometheus import PrometheusMetrics
from streamcodec.server import AccessLog, ServerOptions
from streamcodec.service import Observer, Service
from tests.embedding.threads import in_aiohttp, in_uvicorn, in_werkzeug
from tests.garbage.endings import NBYTES, WRITE_SECONDS, Address, TlsAddress
from tests.garbage.leftovers import Place
from tests.garbage.models import MODEL_SECONDS, models
from tests.guard.serving import guarding
from tests.server.programs import server_here
from tests.transports.certificates import server_side

OPTIONS = ServerOptions(
    max_memory_bytes=6 * NBYTES,
    budget_timeout=0.1,
    read_timeout=0.2,
    header_timeout=0.2,
    write_timeout=WRITE_SECONDS,
    model_timeout=MODEL_SECONDS,
    linger_timeout=0.1,
)

Observers = list[Observer]
Served = tuple[Place, Address]


def _place(service: Service, reserved: Callable[[], int]) -> Place:
    pool = service.pool
    assert pool is not None
    return Place(reserved=reserved, idle=lambda: pool.idle_bytes)


def _observers(service: Service) -> Observers:
    """Return one of each kind."""
    return [
        AccessLog(write=lambda _: None),
        PrometheusMetrics(service, registry=CollectorRegistry()),
        Telemetry(
            service.models,
            tracer_provider=TracerProvider(shutdown_on_exit=False),
            meter_provider=MeterProvider(shutdown_on_exit=False),
        ),
    ]


@contextmanager
def bundled(
    backend: str, *, is_observed: bool, options: ServerOptions = OPTIONS, ssl_context: ssl.SSLContext | None = None
) -> Iterator[Served]:
    """Run our server."""
    service = Service(models())
    found = _observers(service) if is_observed else []
    with server_here(service, options, backend=backend, observer=found, ssl_context=ssl_context) as (server, address):
        yield _place(service, lambda: server.reserved_bytes), address


@contextmanager
def _with_tls(backend: str, *, is_observed: bool) -> Iterator[Served]:
    with bundled(backend, is_observed=is_observed, ssl_context=server_side()) as (place, address):
        yield place, TlsAddress(address)


@contextmanager
def _behind_guard(backend: str, *, is_observed: bool) -> Iterator[Served]:
    """Return the place of the server, and the address of its guard."""
    patience = Timeout(connect=1.0, read=10 * MODEL_SECONDS, write=WRITE_SECONDS, pool=1.0)
    with bundled(backend, is_observed=False) as (place, (host, port)):
        found = [AccessLog(write=lambda _: None)] if is_observed else []
        url = f"http://{host}:{port}"
        with guarding(url, options=OPTIONS, timeout=patience, backend=backend, observer=found) as address:
            yield place, address


@contextmanager
def _in_uvicorn(http: str, *, is_observed: bool) -> Iterator[Served]:
    service = Service(models())
    app = asgi.App(service, OPTIONS, observer=_observers(service) if is_observed else [])
    with in_uvicorn(app, http) as address:
        yield _place(service, lambda: app.frontend.budget.reserved), address


@contextmanager
def _in_aiohttp(*, is_observed: bool) -> Iterator[Served]:
    service = Service(models())
    handler = App(service, OPTIONS, observer=_observers(service) if is_observed else [])
    app = web.Application()
    handler.add_routes(app)
    with in_aiohttp(app) as address:
        yield _place(service, lambda: handler._frontend.budget.reserved), address  # noqa: SLF001 - nobody else asks


@contextmanager
def _in_werkzeug(*, is_observed: bool) -> Iterator[Served]:
    service = Service(models(has_loop=False))
    app = wsgi.App(service, OPTIONS, observer=_observers(service) if is_observed else [])
    with in_werkzeug(app) as address:
        yield _place(service, lambda: app._shared.budget.reserved), address  # noqa: SLF001 - as above


SERVERS: dict[str, Callable[..., AbstractContextManager[Served]]] = {
    "asyncio": partial(bundled, "asyncio"),
    "uvloop": partial(bundled, "uvloop"),
    "trio": partial(bundled, "trio"),
    "asyncio TLS": partial(_with_tls, "asyncio"),
    "uvloop TLS": partial(_with_tls, "uvloop"),
    "trio TLS": partial(_with_tls, "trio"),
    "guard": partial(_behind_guard, "asyncio"),
    "guard trio": partial(_behind_guard, "trio"),
    "uvicorn h11": partial(_in_uvicorn, "h11"),
    "uvicorn httptools": partial(_in_uvicorn, "httptools"),
    "aiohttp": _in_aiohttp,
    "werkzeug": _in_werkzeug,
}
"""How to run each server until a block ends. They are told whether they have observers, and give the address."""
