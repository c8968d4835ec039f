"""`streamcodec fuzz`: sends malformed and boundary requests to a V2 server, and reports what it did wrong."""

from __future__ import annotations

import argparse
import io
import ipaddress
import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

from streamcodec import DATATYPES, __version__
from streamcodec.blackbox import report
from streamcodec.blackbox.examination import Examiner, ProbeState, Result
from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.learning import CannotExamineError, find_baseline, guess_baseline, learn_inputs
from streamcodec.blackbox.mutations import mutation, names
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.wire import OutOfRequestsError, Pacer, Wire
from streamcodec.cli.arguments import count, number, rate, seconds
from streamcodec.cli.files import check_writable, write
from streamcodec.cli.output import complain, say
from streamcodec.client.connections.address import Address
from streamcodec.engine.errors import LocalProtocolError

_DESCRIPTION = """\
Send malformed and boundary requests to a server of the V2 inference protocol, one at a time. Report the requests that
it accepted silently, refused without need, answered with 5xx or did not answer, and those that brought it down.

Use it only for your own servers. A server may crash, and its other requests are then lost. So never examine a server
that others use. After each request, the server is asked for its health and for the answer to a good request.
"""

_EPILOG: Final = """\
examples:
  streamcodec fuzz --list
  streamcodec fuzz http://127.0.0.1:8000 --model identity
  streamcodec fuzz http://127.0.0.1:8000 --model mine --only 'json/*' --all
  streamcodec fuzz http://127.0.0.1:8000 --model mine --input x:FP32:-1,3 --junit fuzz.xml

The exit status is 0 if nothing was found, 1 if something was found, 2 if something could not be examined, 130 after
Ctrl-C, and 141 if the output is a pipe that nobody reads any more.
"""

_FOUND: Final = 1
_CANNOT: Final = 2
_LOOK_SECONDS: Final = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("url", nargs="?", metavar="URL", help="of the server, as http://127.0.0.1:8000")
    parser.add_argument(
        "--model", type=_name, metavar="MODEL", help="name of the model; one that returns its inputs shows most"
    )
    parser.add_argument(
        "--model-version", type=_name, metavar="VERSION", help="of the model (default: the server's choice)"
    )
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME:DATATYPE:SHAPE",
        help="an input of a model whose metadata do not say it, as x:FP32:-1,3, where -1 is any size; one for each "
        "(default: from the metadata, or x:FP32:-1 and s:BYTES:-1)",
    )
    parser.add_argument(
        "--i-own-this-host",
        action="store_true",
        help="permit an address other than that of this machine (loopback)",
    )
    _add_choices(parser)
    _add_bounds(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report for programs")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report for test runners")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Examine and report; the exit status says what was found."""
    if options.list:
        print(*report.probes_table(probe for probe in PROBES if _is_chosen(probe.name, options)), sep="\n")
        return
    if options.url is None or options.model is None:
        options.fail("URL and --model are required unless --list is given")
    _check_choice(options)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # servers may send characters that the terminal cannot show
    try:
        for path in filter(None, (options.json, options.junit)):
            check_writable(path, replaces=True)  # before anything is sent, because the run may not be repeatable
        results = _examine(options)
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except OSError as error:
        raise _given_up(str(error)) from None
    if any(result.finding for result in results):
        raise SystemExit(_FOUND)
    if not _has_run(results) or any(result.state is ProbeState.NOT_RUN for result in results):
        raise SystemExit(_CANNOT)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose probes."""
    parser.add_argument("--list", action="store_true", help="show the probes, what each tests and why; send nothing")
    parser.add_argument("--all", action="store_true", help="also show the probes that passed or were not run")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only these, as 'sizes/*'; may be repeated")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave these out; may be repeated")
    parser.add_argument(
        "--heavy",
        action="store_true",
        help="also send requests that are large, up to 16 MiB, or have brought servers down before",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options that bound what is sent."""
    parser.add_argument("--seed", type=number, default=0, help="of the mutated messages (default: %(default)s)")
    parser.add_argument(
        "--mutations", type=number, default=50, metavar="COUNT", help="how many of them (default: %(default)s)"
    )
    parser.add_argument(
        "--max-requests",
        type=count,
        default=10_000,
        metavar="COUNT",
        help="the most requests to send; a probe takes three (default: %(default)s)",
    )
    parser.add_argument(
        "--max-rate", type=rate, default=100.0, metavar="RATE", help="requests per second (default: %(default)g)"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=5.0, help="seconds after which an answer is missing (default: %(default)g)"
    )
    parser.add_argument(
        "--recovery",
        type=seconds,
        default=5.0,
        help="seconds in which a server that crashed or broke may be restarted (default: %(default)g)",
    )


def _examiner(options: argparse.Namespace) -> Examiner:
    """Learn about the server, or end with the reason why it cannot be examined."""
    try:
        address = _address(options.url)
        pacer = Pacer(max_requests=options.max_requests, max_rate=options.max_rate)
        place: tuple[str, int] | str | None = address.socket_path  # which is on this machine
        if place is None:
            place = _checked_host(address, is_owned=options.i_own_this_host), address.port
        return _learned(options, address, Wire(address=place, pacer=pacer))
    except (CannotExamineError, LocalProtocolError) as error:
        raise _given_up(str(error)) from None
    except OutOfRequestsError:
        raise _given_up("--max-requests is too low to learn about the model") from None


def _learned(options: argparse.Namespace, address: Address, wire: Wire) -> Examiner:
    """Learn the inputs of the model and the answer to a good request."""
    target = Target(
        authority=address.authority,
        prefix=address.prefix,
        model=quote(options.model, safe=""),
        version=None if options.model_version is None else quote(options.model_version, safe=""),
        inputs=tuple(options.inputs),
        is_declared=not options.inputs,
    )
    if not target.inputs:
        target = replace(target, inputs=learn_inputs(wire, target, options.timeout))
    find = find_baseline if target.inputs else guess_baseline
    target, baseline = find(wire, target, options.timeout)
    return Examiner(wire=wire, target=target, baseline=baseline, timeout=options.timeout, recovery=options.recovery)


def _address(url: str) -> Address:
    """Parse the URL; raise CannotExamineError if it asks for more than plain HTTP."""
    address = Address.of(url)
    if address.is_secure or address.credentials is not None:
        raise CannotExamineError("only plain HTTP without credentials is supported")
    return address


def _checked_host(address: Address, *, is_owned: bool) -> str:
    """Resolve the host once, and return its address.

    Raises:
        CannotExamineError: there is no such host, or it is not this machine and `--i-own-this-host` is missing.
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
    """Tell whether a server listens there: a name may have several addresses, and the server may use only one."""
    try:
        with socket.create_connection((host, port), _LOOK_SECONDS):
            return True
    except OSError:
        return False


def _is_chosen(name: str, options: argparse.Namespace) -> bool:
    is_named = options.only is None or any(fnmatchcase(name, pattern) for pattern in options.only)
    return is_named and not any(fnmatchcase(name, pattern) for pattern in options.skip)


def _check_choice(options: argparse.Namespace) -> None:
    """End if a name given with `--only` matches no probe, or if no probe is left."""
    for pattern in options.only or ():
        if not any(fnmatchcase(name, pattern) for name in _names(options)):
            is_heavy = any(fnmatchcase(probe.name, pattern) for probe in PROBES)
            words = "is only sent with --heavy" if is_heavy else "matches no probe; --list shows them"
            options.fail(f"--only {pattern!r}: {words}")
    if not any(_is_chosen(name, options) for name in _names(options)):
        options.fail("--skip leaves no probe to run")


def _names(options: argparse.Namespace) -> Iterator[str]:
    """Return the names of all probes that could be run."""
    named = (probe.name for probe in PROBES if options.heavy or not probe.is_heavy)
    return chain(named, names(options.seed, options.mutations))


def _probes(options: argparse.Namespace, target: Target) -> Iterator[Probe]:
    """Make the chosen probes one by one, each when it is its turn; the heavy ones come last."""
    chosen = [probe for probe in PROBES if _is_chosen(probe.name, options)]
    yield from (probe for probe in chosen if not probe.is_heavy)
    for name in names(options.seed, options.mutations) if target.has_binary else ():
        if _is_chosen(name, options):
            yield mutation(target, name)
    yield from (probe for probe in chosen if probe.is_heavy and options.heavy)


def _examine(options: argparse.Namespace) -> list[Result]:
    """Run the probes. If something ends the run early, the results so far are still shown and written."""
    examiner = _examiner(options)
    probes = _probes(options, examiner.target)
    results: list[Result] = []
    try:
        if not (options.inputs or examiner.target.is_declared):
            inputs = " ".join(f"--input {each}" for each in examiner.target.inputs)
            print(f"The model declares no inputs, and accepts these: {inputs}\n")
        print(report.row(report.HEADING), report.rule(), sep="\n", flush=True)
        for result in examiner.examine(probes):
            results.append(result)
            if options.all or result.finding is not None:
                say(report.result_row(result))
    except KeyboardInterrupt:
        results += [Result(probe=probe, state=ProbeState.NOT_RUN, note="interrupted") for probe in probes]
        raise
    finally:
        print("", *report.groups_table(results), sep="\n")
        print()
        say(f"{_summary(results)}; {examiner.wire.pacer.sent} requests were sent, with seed {options.seed}.")
        _write(options, results)
    return results


def _summary(results: list[Result]) -> str:
    found = sum(result.finding is not None for result in results)
    not_run = [result.note for result in results if result.state is ProbeState.NOT_RUN]
    text = f"{found or 'no'} {'finding' if found == 1 else 'findings'}"
    if not_run:
        return f"{text}; {len(not_run)} probes were not run: {not_run[0]}"
    return text if _has_run(results) else f"{text}, because no probe applies to this model"


def _has_run(results: list[Result]) -> bool:
    return any(result.state in {ProbeState.PASSED, ProbeState.FOUND} for result in results)


def _write(options: argparse.Namespace, results: list[Result]) -> None:
    if options.json is not None:
        document = report.as_json(results, version=__version__, url=options.url, model=options.model, seed=options.seed)
        _write_text(options.json, json.dumps(document, indent=1) + "\n")
    if options.junit is not None:
        _write_text(options.junit, report.as_junit(results, f"streamcodec fuzz {options.url} {options.model}"))


def _write_text(path: Path, text: str) -> None:
    write(path, lambda file: file.write(text.encode()), replaces=True)


def _given_up(reason: str) -> SystemExit:
    """Print why nothing can be examined; return the exception that ends the program."""
    complain(reason)
    return SystemExit(_CANNOT)


def _name(text: str) -> str:
    """Read a name that can be percent-encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def _input(text: str) -> Input:
    """Read `NAME:DATATYPE:SHAPE`; a name may contain colons."""
    parts = _name(text).rsplit(":", 2)
    expected = 3
    if len(parts) != expected or not parts[0] or parts[1] not in DATATYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:DATATYPE:SHAPE, as x:FP32:-1,3")
    try:
        shape = tuple(int(size) for size in parts[2].split(",") if parts[2])
    except ValueError:
        shape = (-2,)
    if min(shape, default=0) < -1:
        raise argparse.ArgumentTypeError(f"{parts[2]!r} is not a shape: sizes separated by commas, -1 for any")
    return Input(name=parts[0], datatype=DATATYPES[parts[1]], shape=shape)
