"""`streamcodec fuzz`: send malformed and boundary requests to a V2 server, and say what it did wrong."""

from __future__ import annotations

import argparse
import ipaddress
import json
import math
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import quote

from streamcodec import DATATYPES, __version__
from streamcodec.blackbox import report
from streamcodec.blackbox.examination import Examiner, Result, State
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.learning import CannotExamineError, find_baseline, learn_inputs
from streamcodec.blackbox.mutations import mutations
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.wire import OutOfRequestsError, Pacer, Wire
from streamcodec.cli.arguments import Commands, seconds
from streamcodec.client.exchange import Address
from streamcodec.core.errors import LocalProtocolError

_DESCRIPTION = """\
Send malformed and boundary requests to a server of the V2 inference protocol, one at a time, and report what it
accepted silently, refused without need, answered with 5xx or not at all, and what brought it down.

Only for servers that are yours. Some fall, and what they were doing falls with them: never point it at one that others
use. After each request the server is asked for its health and for the answer to a good request.
"""

_FOUND: Final = 1
_CANNOT: Final = 2
_LOOK_SECONDS: Final = 2.0


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "fuzz",
        help="examine a server with malformed requests",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="The exit status is 0 if nothing was found, 1 if something was, and 2 if nothing could be examined.",
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="of the server, as http://127.0.0.1:8000")
    parser.add_argument("--model", metavar="MODEL", help="name of the model; one that echoes its inputs shows most")
    parser.add_argument("--model-version", metavar="VERSION", help="of the model (default: the server's choice)")
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME:DATATYPE:SHAPE",
        help="an input of a model whose metadata does not tell, as x:FP32:-1,3, where -1 is any size; one for each",
    )
    parser.add_argument(
        "--i-own-this-host",
        action="store_true",
        help="let the address be another one than of this machine itself (loopback)",
    )
    _add_choices(parser)
    _add_bounds(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report for programs")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report for test runners")
    parser.set_defaults(run=run, fail=parser.error)


def run(options: argparse.Namespace) -> None:
    """Examine and report; the exit status tells what was found."""
    probes = [probe for probe in PROBES if _is_chosen(probe, options)]
    if options.list:
        print(*report.probes_table(probes), sep="\n")
        return
    if options.url is None or options.model is None:
        options.fail("URL and --model are needed, but for --list")
    examiner = _examiner(options)
    chance = mutations(examiner.target, options.seed, options.mutations)
    place = _first_heavy(probes)
    probes[place:place] = [probe for probe in chance if _is_chosen(probe, options)]
    results = list(_shown(examiner.examine(probes), shows_all=options.all))
    print("", *report.groups_table(results), sep="\n")
    print(f"\n{_summary(results)}; {examiner.wire.pacer.sent} requests were sent, with seed {options.seed}.")
    _write(options, results)
    if any(result.finding for result in results):
        raise SystemExit(_FOUND)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose probes."""
    parser.add_argument(
        "--list", action="store_true", help="show the probes, what each tests and why, and send nothing"
    )
    parser.add_argument("--all", action="store_true", help="show what passed, too, and what was not run")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only these, as 'sizes/*'; may be repeated")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave these out; may be repeated")
    parser.add_argument(
        "--heavy",
        action="store_true",
        help="also send what is large, up to 16 MiB, or has brought servers down before",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options that bound what is sent."""
    parser.add_argument("--seed", type=_count, default=0, help="of the mutated messages (default: %(default)s)")
    parser.add_argument(
        "--mutations", type=_count, default=50, metavar="COUNT", help="how many of them (default: %(default)s)"
    )
    parser.add_argument(
        "--max-requests", type=_count, default=2000, metavar="COUNT", help="to send at most (default: %(default)s)"
    )
    parser.add_argument(
        "--max-rate", type=_rate, default=100.0, metavar="RATE", help="requests per second (default: %(default)g)"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=5.0, help="seconds after which an answer is missing (default: %(default)g)"
    )
    parser.add_argument(
        "--recovery",
        type=seconds,
        default=5.0,
        help="seconds in which a server that went down may be started anew (default: %(default)g)",
    )


def _examiner(options: argparse.Namespace) -> Examiner:
    """Learn what has to be known of the server, or end with the reason why it cannot be examined."""
    try:
        address = Address.of(options.url)
        pacer = Pacer(max_requests=options.max_requests, max_rate=options.max_rate)
        wire = Wire(address=(_checked_host(address, is_owned=options.i_own_this_host), address.port), pacer=pacer)
        return _learned(options, address, wire)
    except (CannotExamineError, LocalProtocolError) as error:
        reason = str(error)
    except OutOfRequestsError:
        reason = "--max-requests is too low to learn about the model"
    print(f"streamcodec: {reason}", file=sys.stderr)
    raise SystemExit(_CANNOT)


def _learned(options: argparse.Namespace, address: Address, wire: Wire) -> Examiner:
    """Learn the inputs of the model and the answer to a good request."""
    model = quote(options.model, safe="")
    if options.model_version is not None:
        model += f"/versions/{quote(options.model_version, safe='')}"
    target = Target(
        authority=address.authority,
        prefix=address.prefix,
        model=model,
        inputs=tuple(options.inputs),
        is_declared=not options.inputs,
    )
    if target.is_declared:
        target = replace(target, inputs=learn_inputs(wire, target, options.timeout))
    target, baseline = find_baseline(wire, target, options.timeout)
    return Examiner(wire=wire, target=target, baseline=baseline, timeout=options.timeout, recovery=options.recovery)


def _checked_host(address: Address, *, is_owned: bool) -> str:
    """Resolve the host once, and return that address.

    Raises:
        CannotExamineError: there is no such host, or it is not this machine and nobody has said that it is theirs.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise CannotExamineError(f"{address.host!r} cannot be found: {error.strerror or error}") from None
    hosts = [str(entry[4][0]) for entry in found]
    for host in hosts:
        if not (is_owned or ipaddress.ip_address(host.partition("%")[0]).is_loopback):
            raise CannotExamineError(f"{host} is not this machine; add --i-own-this-host if it is yours to examine")
    return next((host for host in hosts if _is_open(host, address.port)), hosts[0])


def _is_open(host: str, port: int) -> bool:
    """Tell whether something listens there: a name may have addresses of which the server knows one."""
    try:
        with socket.create_connection((host, port), _LOOK_SECONDS):
            return True
    except OSError:
        return False


def _is_chosen(probe: Probe, options: argparse.Namespace) -> bool:
    if probe.is_heavy and not options.heavy:
        return False
    is_named = options.only is None or any(fnmatchcase(probe.name, name) for name in options.only)
    return is_named and not any(fnmatchcase(probe.name, name) for name in options.skip)


def _first_heavy(probes: list[Probe]) -> int:
    """Return where the heavy ones begin, which come last."""
    return next((index for index, probe in enumerate(probes) if probe.is_heavy), len(probes))


def _shown(results: Iterator[Result], *, shows_all: bool) -> Iterator[Result]:
    """Print results as they come."""
    print(report.row(report.HEADING), report.rule(), sep="\n", flush=True)
    for result in results:
        if shows_all or result.finding is not None:
            print(report.result_row(result), flush=True)
        yield result


def _summary(results: list[Result]) -> str:
    found = sum(result.finding is not None for result in results)
    not_run = [result.note for result in results if result.state is State.NOT_RUN]
    text = f"{found or 'no'} {'finding' if found == 1 else 'findings'}"
    return f"{text}; {len(not_run)} probes were not run: {not_run[0]}" if not_run else text


def _write(options: argparse.Namespace, results: list[Result]) -> None:
    if options.json is not None:
        document = report.as_json(results, version=__version__, url=options.url, model=options.model, seed=options.seed)
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.junit is not None:
        name = f"streamcodec fuzz {options.url} {options.model}"
        options.junit.write_text(report.as_junit(results, name), encoding="utf-8")


def _input(text: str) -> Input:
    """Read `NAME:DATATYPE:SHAPE`; a name may hold colons."""
    parts = text.rsplit(":", 2)
    expected = 3
    if len(parts) != expected or not parts[0] or parts[1] not in DATATYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:DATATYPE:SHAPE, as x:FP32:-1,3")
    try:
        shape = tuple(int(size) for size in parts[2].split(",") if parts[2])
    except ValueError:
        shape = (-2,)
    if min(shape, default=0) < -1:
        raise argparse.ArgumentTypeError(f"{parts[2]!r} is not a shape: sizes with commas, -1 for any")
    return Input(name=parts[0], datatype=DATATYPES[parts[1]], shape=shape)


def _count(text: str) -> int:
    longest = 9
    if not (text.isascii() and text.isdigit() and len(text) <= longest):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of requests per second above 0")
    return value
