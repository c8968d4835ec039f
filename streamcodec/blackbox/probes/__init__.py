"""Probes: all probes by group, in the order in which they are sent. Dangerous probes come last."""

from __future__ import annotations

from dataclasses import replace

from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import (
    boundaries,
    compression,
    datatypes,
    elements,
    header_length,
    heavy,
    http,
    json_text,
    members,
    routes,
    shapes,
    sizes,
    transfers,
    values,
)
from streamcodec.blackbox.weaknesses import weaknesses_of

_NAMED: tuple[Probe, ...] = (
    *boundaries.PROBES,
    *header_length.PROBES,
    *sizes.PROBES,
    *shapes.PROBES,
    *datatypes.PROBES,
    *elements.PROBES,
    *members.PROBES,
    *values.PROBES,
    *json_text.PROBES,
    *compression.PROBES,
    *routes.PROBES,
    *http.PROBES,
    *transfers.PROBES,
    *heavy.PROBES,
)

PROBES: tuple[Probe, ...] = tuple(replace(probe, weaknesses=weaknesses_of(probe.name)) for probe in _NAMED)
"""All named probes."""
