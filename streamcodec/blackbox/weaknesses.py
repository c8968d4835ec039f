"""Weaknesses: the names that security databases have for what a probe finds.

A CWE is a class of errors. A server that fails a probe has an error of that class, whether somebody can exploit it or
not. A CVE is one error in one program: another server had the very error that the probe looks for. Programs that
collect findings sort them by these names. Good requests and ordinary refusals have none, such as an unknown model.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

_TABLE: Final[tuple[tuple[str, str], ...]] = (
    ("header-length/wrapped-*", "CWE-190"),
    ("header-length/5000-digits header-length/minus", "CWE-1284"),
    ("header-length/list header-length/repeated", "CWE-235"),
    ("header-length/past-body header-length/short header-length/long header-length/garbage-inside", "CWE-130"),
    ("header-length/empty", "CWE-230"),
    ("header-length/*", "CWE-1286"),
    ("sizes/wrapped-*", "CWE-190"),
    ("sizes/negative* sizes/2^*", "CWE-1284"),
    ("sizes/fraction sizes/half sizes/text sizes/boolean sizes/array", "CWE-1287"),
    ("sizes/absent sizes/data-and-size", "CWE-1288"),
    ("sizes/*", "CWE-130"),
    ("shapes/minus-one shapes/negative* shapes/2^31 shapes/2^63 shapes/4000-digits", "CWE-1284"),
    ("shapes/product-wraps shapes/bytes-wrap shapes/2^80 shapes/rank-1000", "CWE-190"),
    ("shapes/absent", "CWE-238"),
    ("shapes/one-more shapes/doubled shapes/zero", "CWE-1288"),
    ("shapes/*", "CWE-1287"),
    ("datatypes/number datatypes/array datatypes/null", "CWE-1287"),
    ("datatypes/absent", "CWE-238"),
    ("datatypes/empty", "CWE-230"),
    ("datatypes/other-size", "CWE-1288"),
    ("datatypes/*", "CWE-232"),
    ("elements/one-more elements/one-less elements/none", "CWE-1288"),
    ("elements/*", "CWE-130"),
    ("members/no-* members/name-absent members/input-missing members/output-unnamed", "CWE-238"),
    ("members/name-empty", "CWE-230"),
    ("members/input-doubled", "CWE-694"),
    ("members/input-unknown members/output-unknown", "CWE-236"),
    ("members/*", "CWE-1287"),
    ("values/too-* values/none values/ragged", "CWE-1288"),
    ("values/two-for-boolean", "CWE-232"),
    ("values/fraction-for-integer values/integer-too-* values/float-too-large values/nan-for-integer", "CWE-681"),
    ("values/hexadecimal values/leading-zero values/plus values/bare-point values/underscore", "CWE-1286"),
    ("values/*", "CWE-1287"),
    ("json/duplicate-*", "CWE-235"),
    ("json/byte-order-mark json/utf-*", "CWE-173"),
    ("json/latin-1 json/overlong json/surrogate-bytes json/beyond-unicode json/lone-surrogate", "CWE-176"),
    ("json/array json/string json/null", "CWE-1287"),
    ("json/trailing-nul json/raw-nul", "CWE-158"),
    ("json/deep", "CWE-674"),
    ("json/*", "CWE-1286"),
    ("compression/bad-* compression/no-trailer", "CWE-354"),
    ("compression/cut", "CWE-239"),
    ("compression/trailing-bytes", "CWE-130"),
    ("compression/small-bomb", "CWE-409"),
    ("compression/unknown", "CWE-232"),
    ("compression/not-gzip compression/trailing compression/empty", "CWE-1286"),
    ("routes/upwards", "CWE-22"),
    ("routes/nul", "CWE-158"),
    ("routes/not-utf-8", "CWE-176"),
    ("routes/half-an-escape", "CWE-177"),
    ("routes/line-end http/field-in-id", "CWE-113"),
    ("http/length-plus http/length-hexadecimal", "CWE-444 CVE-2023-38697"),
    ("http/length-wrapped", "CWE-190"),
    ("http/*length* http/*chunk* http/*-coding http/blank-in-name http/bare-* http/folded", "CWE-444"),
    ("http/control-in-name http/no-colon http/nameless http/version-text", "CWE-1286"),
    ("http/nul-in-value", "CWE-158"),
    ("http/two-hosts", "CWE-235"),
    ("chunks/size-0x chunks/size-plus chunks/lf-in-extension", "CWE-444 CVE-2023-38697"),
    ("chunks/size-wrapped", "CWE-190 CWE-444"),
    ("chunks/no-line-end", "CWE-444 CVE-2025-43859"),
    ("chunks/bare-lf", "CWE-444 CVE-2025-22871"),
    ("chunks/trailer-no-field", "CWE-444 CVE-2025-59822"),
    ("chunks/*", "CWE-444"),
    ("cuts/*", "CWE-239"),
    ("heavy/head-without-end heavy/many-fields heavy/many-inputs", "CWE-770"),
    ("heavy/promised-*", "CWE-789"),
    ("heavy/2^40-elements", "CWE-789"),
    ("heavy/many-elements", "CWE-130"),
    ("heavy/long-number", "CWE-407"),
    ("heavy/bomb", "CWE-409"),
    ("heavy/deep-*", "CWE-674"),
)
"""Patterns of names of probes, and what is found by them; the first pattern that fits counts."""


def weaknesses_of(name: str) -> tuple[str, ...]:
    """Return the weaknesses that a probe looks for, by its name; none if it has no such name."""
    for patterns, found in _TABLE:
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return tuple(found.split())
    return ()
