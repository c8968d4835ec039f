"""`streamcodec serve`: serves models over HTTP.

An option belongs either to the service, or to the server around it. A user who passes a `Service` has already
configured it. So options of the first kind are then refused, and not silently ignored.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from streamcodec.cli.arguments import checked, count, given, size
from streamcodec.cli.description import describe
from streamcodec.cli.logs import access_log, add_logging, set_up_logging
from streamcodec.cli.output import complain
from streamcodec.cli.serving.encryption import add_encryption, context_of
from streamcodec.cli.serving.hosts import add_allowed_hosts
from streamcodec.cli.serving.limits import add_limits, flag_of
from streamcodec.cli.serving.loading import USUAL_NAMES, Loaded, LoadingError, check_path, load, load_anew
from streamcodec.cli.serving.metrics import add_metrics, board_of, check_metrics, counters, published
from streamcodec.cli.serving.places import add_places, announce, place_of_options
from streamcodec.cli.serving.reloading import Watcher, joined, supervise, wait
from streamcodec.cli.serving.sparing import Sizes, sizes_of
from streamcodec.engine.errors import LocalProtocolError, ProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.json.output import NonFiniteOutput
from streamcodec.runtime.descriptors import free_descriptors, places_for
from streamcodec.server import Server, run_workers
from streamcodec.server.connection.admission import RESERVED_PLACES
from streamcodec.server.processes.running import collect_seldom, serve_until_signal
from streamcodec.server.sockets.opening import open_place, place_of
from streamcodec.service import Observer, Service, demo_models
from streamcodec.service.policies import CorsPolicy

if TYPE_CHECKING:
    from streamcodec.metrics.board import Board

_THREADS_SECONDS: Final = 1.0
"""Time for threads to end after the server; threads that answer requests take a moment."""

_DESCRIPTION = f"""\
Serve models by the V2 inference protocol until Ctrl-C or SIGTERM.

MODULE:OBJECT names what to serve: a Model, a list of Models, a ModelRegistry, a Service, or a function that returns one
of these. MODULE alone stands for the first of {", ".join(USUAL_NAMES)} in it. The module is looked for in the current
directory first; the path of a file, such as models.py, works too. Without it, two demo models are served: 'identity'
returns its inputs, 'sink' returns the number of tensor bytes that it received.

SIGHUP has it read MODULE and the certificate again, without losing a request; with workers, they are replaced one after
the other. The exit status is 0 after SIGTERM and 130 after Ctrl-C. Under systemd, Type=notify-reload, WatchdogSec= and
socket activation work.

When the server is ready, it prints its address, "listening on http://HOST:PORT", or https, or http+unix://PATH for a
Unix socket, and then what it serves. So a program that starts it needs to read only one line.
"""

_EPILOG = """\
examples:
  streamcodec serve
  streamcodec serve my_models.py --reload
  streamcodec serve my_models:service --host 0.0.0.0 --port 80
  streamcodec serve my_models.py --host 0.0.0.0 --workers 4 --drain-delay 5
  streamcodec serve my_models.py --uds /run/models/serve.sock --uds-permissions 660
  streamcodec serve my_models.py --host 0.0.0.0 --port 8443 --ssl-certfile server.crt --ssl-keyfile server.key
  streamcodec serve my_package.models:make_models --max-memory 2G --max-workers 2
"""

_LIMITS = ("max_header_bytes", "max_message_bytes", "max_tensor_bytes", "max_compression_ratio")
"""Fields of `Limits` that are options."""

_SERVICE = {
    "nonfinite": "--nonfinite",
    "cors_origins": "--cors-origin",
    "allowed_hosts": "--allowed-host",
    "compresses": "--compress",
    "decompresses": "--no-compression",
    "classifies": "--classification",
    "allow_headerless": "--no-headerless",
    "max_pool_bytes": "--pool-memory",
}
"""Arguments of `Service` that are options, with their flags. Only options that are given are in the namespace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "models",
        nargs="?",
        type=checked(check_path),
        metavar="MODULE[:OBJECT]",
        help="what to serve (default: the demo models)",
    )
    add_places(parser)
    parser.add_argument(
        "--memory-lane",
        dest="max_lane_bytes",
        type=size,
        default=argparse.SUPPRESS,
        metavar="SIZE",
        help="let clients of that socket share memory with this server, so that tensors are not sent: this much for "
        "all of them, as a part of --max-memory; Linux only (default: none)",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="restart when a file that MODULE imports has changed; for development: checks the files three times a "
        "second, and gives requests in progress three seconds",
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        default=1,
        help="processes that serve on the port, one for each processor that shall be used; each loads the models, and "
        "has its part of --max-memory; the other limits hold for each; one that dies is replaced, and so is one that "
        "is stuck for --worker-timeout (default: %(default)s)",
    )
    add_encryption(parser)
    add_logging(parser)
    add_metrics(parser)
    _add_answers(parser)
    _add_requests(parser)
    _add_clients(parser)
    add_limits(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serve until a signal ends it."""
    if options.uds is None and "max_lane_bytes" in options:
        options.fail("--memory-lane: memory is shared by a Unix socket only; add --uds")
    place = place_of_options(options)
    set_up_logging(options)
    check_metrics(options)
    if options.workers > 1:
        _run_workers(options, place)
    if options.worker_timeout is not None:
        options.fail("--worker-timeout: nobody watches a server in one process; add --workers")
    loaded = _loaded_anew(options) if options.reload else _loaded(options)
    sizes = sizes_of(options)  # now that the models have taken their memory
    service = _service(loaded, options, sizes)
    server_options = sizes.options
    ssl_context = context_of(options)
    with access_log(options) as logs, open_place(**place) as listener:
        server = Server(service, server_options, observer=counters(options, service, logs), ssl_context=ssl_context)
        collect_seldom()
        where = place_of(listener, place.get("host", ""))
        found = sizes.text(server.max_connections)
        tell = partial(announce, options, *where, *_description(loaded, service).split("\n"), found)
        anew = partial(_read_anew, options, service)
        status = serve_until_signal(server, listener, tell, server_options.shutdown_timeout, anew)
    if server.unfinished_calls:
        os._exit(status)  # models are still running in threads, and the interpreter would wait for them
    _leave_threads(status)
    raise SystemExit(status)


def _read_anew(options: argparse.Namespace, service: Service) -> ssl.SSLContext | None:
    """Read the models and the certificate again; if one of them cannot be read, nothing changes."""
    context = context_of(options)
    if options.models is not None:
        served = load_anew(options.models).served
        service.models.take_over(served.models if isinstance(served, Service) else served)
    return context


def _run_workers(options: argparse.Namespace, place: dict[str, Any]) -> NoReturn:
    """Serve in several processes, each of which loads the models."""
    if options.reload:
        options.fail("--reload: not together with --workers; leave one of the two out")
    sizes = sizes_of(options, processes=options.workers)
    server_options = sizes.options
    context_of(options)  # what is wrong with a certificate is said once, before there are processes
    found = sizes.text(places_for(server_options.max_connections, RESERVED_PLACES, free_descriptors())[0])
    served: dict[Service, Loaded] = {}

    def make_service() -> Service:
        try:
            loaded = _loaded(options)
            service = _service(loaded, options, sizes)
        except (ProtocolError, OSError) as error:  # in a process of its own
            complain(str(error))
            raise SystemExit(1) from None
        served[service] = loaded
        return service

    def certificate() -> ssl.SSLContext:
        try:
            return cast("ssl.SSLContext", context_of(options))
        except ProtocolError as error:
            complain(str(error))
            raise SystemExit(1) from None

    with board_of(options) as board:
        status = run_workers(
            make_service,
            options.workers,
            **place,
            options=server_options,
            observing=partial(_observing, options, board),
            on_worker_end=None if board is None else board.ended,
            describe=lambda service: _description(served[service], service),
            on_listening=lambda host, number, text: announce(options, host, number, *text.split("\n"), found),
            ssl_context=None if options.ssl_certfile is None else certificate,
        )
    raise SystemExit(status)


@contextlib.contextmanager
def _observing(options: argparse.Namespace, board: Board | None, service: Service) -> Iterator[list[Observer]]:
    """Yield the observers of one worker."""
    with access_log(options) as logs, published(counters(options, service, logs, board), board) as observers:
        yield observers


def _description(loaded: Loaded, service: Service) -> str:
    return "\n".join([f"serving {loaded.source}:", *describe(service.models)])


def _loaded(options: argparse.Namespace) -> Loaded:
    if options.models is None:
        return Loaded(served=demo_models(), source="the demo models")
    loaded = load(options.models)
    if not (isinstance(loaded.served, Service) or loaded.served.offers):
        complain(f"{loaded.source} has no models; nothing is served until the program adds some")
    return loaded


def _loaded_anew(options: argparse.Namespace) -> Loaded:
    """Load what to serve in a process that is restarted when its files change."""
    if options.models is None:
        options.fail("--reload: the demo models do not change; say which MODULE to serve")
    channel = joined()
    if channel is None:
        raise SystemExit(supervise())
    watcher = Watcher(channel)
    try:
        loaded = _loaded(options)
    except LocalProtocolError as error:
        watcher.look(error.files if isinstance(error, LoadingError) else ())
        complain(f"{error}; waiting for a change")
        wait()
    watcher.look()
    return loaded


def _service(loaded: Loaded, options: argparse.Namespace, sizes: Sizes) -> Service:
    """Return the loaded service, or make one with the options."""
    limits, others = given(options, _LIMITS), given(options, _SERVICE)
    if not isinstance(loaded.served, Service):
        if sizes.pool_bytes is not None:
            others.setdefault("max_pool_bytes", sizes.pool_bytes)
        if "nonfinite" in others:
            others["nonfinite"] = NonFiniteOutput(others["nonfinite"])
        return Service(loaded.served, limits=Limits(**limits), **others)
    if refused := [*(_SERVICE[name] for name in others), *map(flag_of, limits)]:
        options.fail(f"{', '.join(refused)}: {loaded.source} is a Service; set these where it is made")
    return loaded.served


def _leave_threads(status: int) -> None:
    """End without waiting for threads that models have started themselves; the interpreter would wait for them."""
    end = time.monotonic() + _THREADS_SECONDS
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                os._exit(status)


def _add_answers(parser: argparse.ArgumentParser) -> None:
    """Add the options about answers; this and the next two groups are options of the service."""
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--nonfinite",
        choices=[choice.value for choice in NonFiniteOutput],
        default=argparse.SUPPRESS,
        help="how NaN and the infinities are written in JSON outputs, which have no form for them: literal (NaN, as "
        "Triton writes it), null (valid JSON, as KServe writes it, but the value is lost), or error (status 400; such "
        "an output must be requested in binary) (default: literal)",
    )
    group.add_argument(
        "--classification",
        dest="classifies",
        action="store_true",
        default=argparse.SUPPRESS,
        help='let requests ask for the K highest values of an output with index and label, by {"classification": K} '
        "in the parameters of the requested output, as with Triton",
    )
    group.add_argument(
        "--compress",
        dest="compresses",
        action="store_true",
        default=argparse.SUPPRESS,
        help="compress answers (gzip, deflate) if a client's Accept-Encoding prefers it; for slow networks only: "
        "tensors compress at 30 to 130 MB/s, floats by less than a tenth, and some clients ask for it without need",
    )


def _add_requests(parser: argparse.ArgumentParser) -> None:
    """Add the options about forms of requests that are refused."""
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--no-compression",
        dest="decompresses",
        action="store_false",
        default=argparse.SUPPRESS,
        help="refuse compressed requests, with status 415: decompression occupies a thread up to a thousand times as "
        "long as an uncompressed request of the same size",
    )
    group.add_argument(
        "--no-headerless",
        dest="allow_headerless",
        action="store_false",
        default=argparse.SUPPRESS,
        help="refuse requests with binary tensors and without the field Inference-Header-Content-Length, which says "
        "where the tensors begin; some clients leave it out, and without this option the server searches for the end "
        "of their JSON",
    )


def _add_clients(parser: argparse.ArgumentParser) -> None:
    """Add the options about the permitted clients."""
    group = parser.add_argument_group("clients")
    group.add_argument(
        "--cors-origin",
        dest="cors_origins",
        action="append",
        default=argparse.SUPPRESS,
        type=checked(lambda text: CorsPolicy.of([text])),
        metavar="ORIGIN",
        help="permit web pages of this origin to call the server from a browser, as https://app.example or "
        "http://localhost:3000; give one for each, or '*' for every page (default: none)",
    )
    add_allowed_hosts(group)
