"""Routes: unknown models and versions, wrong methods, and paths that lead out of the service."""

from __future__ import annotations

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.probe import Make, Probe
from streamcodec.blackbox.probes.sources import SEMANTICS, V2
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import INJECTED, Expectation

_REFUSE = Expectation.REFUSE
_PATHS = f"{V2}, paths"
_METHODS = f"{SEMANTICS}, section 15.5.6: a method that a resource does not have is answered 405"


def _posted_to(path: str) -> Make:
    """Send a right body to another path; `{model}` is the model."""

    def make(target: Target) -> RawRequest:
        request = target.send(target.any_form())
        return target.reframe(request, "Content-Length: {n}", path=path.format(model=target.model))

    return make


def _by(method: str) -> Make:
    """Ask for inference by another method, without a body."""
    return lambda target: RawRequest(pieces=(target.head(method=method),))


PROBES = (
    Probe(
        "routes/unknown-model",
        _REFUSE,
        "an unknown model",
        _PATHS,
        _posted_to("/v2/models/no-such-model-here/infer"),
    ),
    Probe(
        "routes/unknown-version",
        _REFUSE,
        "an unknown version",
        _PATHS,
        _posted_to("/v2/models/{model}/versions/987654/infer"),
        frozenset({501}),
    ),
    Probe(
        "routes/version-text",
        _REFUSE,
        "a version that is a word",
        _PATHS,
        _posted_to("/v2/models/{model}/versions/latest-of-all/infer"),
        frozenset({501}),
    ),
    Probe(
        "routes/unknown-action",
        _REFUSE,
        "an unknown word instead of infer",
        _PATHS,
        _posted_to("/v2/models/{model}/infers"),
    ),
    Probe("routes/upwards", _REFUSE, "a model called ../../etc", _PATHS, _posted_to("/v2/models/..%2f..%2fetc/infer")),
    Probe("routes/nul", _REFUSE, "a model whose name ends in NUL", _PATHS, _posted_to("/v2/models/{model}%00/infer")),
    Probe(
        "routes/not-utf-8", _REFUSE, "a model whose name is not UTF-8", _PATHS, _posted_to("/v2/models/%ff%fe/infer")
    ),
    Probe(
        "routes/half-an-escape",
        _REFUSE,
        "a model whose name ends in a percent sign",
        _PATHS,
        _posted_to("/v2/models/{model}%/infer"),
    ),
    Probe(
        "routes/line-end",
        _REFUSE,
        "a model whose name has a line end and a field",
        _PATHS,
        _posted_to(f"/v2/models/a%0d%0a{INJECTED}:%201/infer"),
    ),
    Probe(
        "routes/long",
        _REFUSE,
        "a model whose name has 4,000 letters",
        _PATHS,
        _posted_to(f"/v2/models/{'a' * 4000}/infer"),
    ),
    Probe("routes/get-infer", _REFUSE, "GET for inference", _METHODS, _by("GET")),
    Probe("routes/delete-infer", _REFUSE, "DELETE for inference", _METHODS, _by("DELETE"), frozenset({501})),
    Probe("routes/own-method", _REFUSE, "an unknown method", _METHODS, _by("INFER"), frozenset({501})),
)
"""The probes of this group."""
