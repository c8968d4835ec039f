"""Inspection: what a message holds and where it breaks a rule, as plain data that writers show.

`examine` reads one message from a `Source` with the decoders of its format, and returns a `Report`. Tensors of fixed
item size pass through one window, so a file of any size takes the same memory. A BYTES tensor and a JSON header are
held as the decoders hold them. This room does no I/O of its own, and does not know how a report is shown.
"""

from streamcodec.inspection.examination import Source, examine
from streamcodec.inspection.forms import Form
from streamcodec.inspection.report import (
    Failure,
    Head,
    HeaderText,
    HexView,
    Histogram,
    Picture,
    Report,
    Segment,
    Statistics,
    TensorReport,
)

__all__ = [
    "Failure",
    "Form",
    "Head",
    "HeaderText",
    "HexView",
    "Histogram",
    "Picture",
    "Report",
    "Segment",
    "Source",
    "Statistics",
    "TensorReport",
    "examine",
]
