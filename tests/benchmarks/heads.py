"""Heads: the fields that real clients send before those of the message; the numbers in them are new with each request.

All ask for an answer that is not compressed. Their own `Accept-Encoding` would make Triton compress it and ours, by
default, not; that would be no comparison of heads.
"""

from __future__ import annotations

from typing import Final

from tests.benchmarks.requests import Fields
from tests.benchmarks.wrk import MARK

_PLAIN: Final = ("Accept-Encoding", "identity")

HEADS: Final[dict[str, Fields]] = {
    "a browser": [
        ("Connection", "keep-alive"),
        ("sec-ch-ua-platform", '"Linux"'),
        (
            "User-Agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36",
        ),
        ("sec-ch-ua-mobile", "?0"),
        ("Accept", "*/*"),
        ("Origin", "http://127.0.0.1:3000"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Mode", "cors"),
        ("Sec-Fetch-Dest", "empty"),
        ("Referer", "http://127.0.0.1:3000/"),
        _PLAIN,
        ("Accept-Language", "en-GB,en;q=0.9,de;q=0.8"),
    ],
    "KServe's client": [
        ("Accept", "*/*"),
        _PLAIN,
        ("Connection", "keep-alive"),
        ("User-Agent", "python-httpx/0.28.1"),
    ],
    "curl": [("User-Agent", "curl/8.5.0"), ("Accept", "*/*")],
    "tritonclient": [("User-Agent", "python/gevent-http-client-2.6.1")],
    "an ingress": [
        ("X-Request-ID", f"0123456789abcdef{MARK}"),
        ("X-Real-IP", "192.0.2.17"),
        ("X-Forwarded-For", "192.0.2.17, 198.51.100.4"),
        ("X-Forwarded-Host", "models.example.com"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Scheme", "https"),
        ("User-Agent", "python-httpx/0.28.1"),
        ("Accept", "*/*"),
        ("traceparent", f"00-0123456789abcdef{MARK}-0123456789abcdef-01"),
    ],
}
"""By the client."""
