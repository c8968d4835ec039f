"""Environ: what servers say of a request, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from streamcodec import MessageError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.wsgi.reading import client_of, head_of

BASE: dict[str, Any] = {"REQUEST_METHOD": "GET", "PATH_INFO": "/v2", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "x"}


def target_of(**variables: str) -> str:
    return head_of({**BASE, **variables}, DEFAULT_LIMITS).target


@pytest.mark.parametrize(
    ("variables", "target"),
    [
        ({"PATH_INFO": "/v2/models/a b/ready"}, "/v2/models/a%20b/ready"),
        ({"PATH_INFO": "/v2/models/\xc3\xbc"}, "/v2/models/%C3%BC"),
        ({"PATH_INFO": "/v2", "QUERY_STRING": "a=%20"}, "/v2?a=%20"),
        ({"PATH_INFO": "/v2/a/b", "RAW_URI": "/v2/a%2Fb?x"}, "/v2/a%2Fb"),
        ({"PATH_INFO": "/v2/a/b", "REQUEST_URI": "/v2/a%2Fb"}, "/v2/a%2Fb"),
        ({"PATH_INFO": "/v2/a/b", "REQUEST_URI": "http://x:1/v2/a%2Fb"}, "/v2/a%2Fb"),
        ({"PATH_INFO": "/v2/a/b", "SCRIPT_NAME": "/i", "RAW_URI": "/i/v2/a%2Fb"}, "/v2/a%2Fb"),
        ({"PATH_INFO": "/v2/a/b", "SCRIPT_NAME": "/i j/k", "RAW_URI": "/i%20j/k/v2/a%2Fb"}, "/v2/a%2Fb"),
        # A proxy has taken the mount off, or something has changed the path: what was sent means nothing any more.
        ({"PATH_INFO": "/v2/a b", "SCRIPT_NAME": "/i", "RAW_URI": "/v2/a%20b"}, "/v2/a%20b"),
        ({"PATH_INFO": "/v2/other", "RAW_URI": "/v2/a%2Fb"}, "/v2/other"),
        ({"PATH_INFO": "", "SCRIPT_NAME": "/i", "RAW_URI": "/i"}, "/"),
    ],
)
def test_the_target_is_what_is_below_the_mount(variables: dict[str, str], target: str) -> None:
    assert target_of(**variables) == target


def test_fields_are_those_of_the_head() -> None:
    head = head_of(
        {
            **BASE,
            "CONTENT_TYPE": "a/b",
            "CONTENT_LENGTH": "",
            "HTTP_CONTENT_TYPE": "c/d",
            "HTTP_X_Y": " z ",
            "PATH": "/",
        },
        DEFAULT_LIMITS,
    )
    assert set(head.fields.items) == {(b"content-type", b"a/b"), (b"host", b"x"), (b"x-y", b"z")}
    assert head.content_length == 0


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"CONTENT_LENGTH": "5,5"}, 400),
        ({"CONTENT_LENGTH": "+5"}, 400),
        ({"HTTP_HOST": "a b"}, 400),
        ({"HTTP_TRANSFER_ENCODING": "gzip"}, 501),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, 411),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": "5", "wsgi.input_terminated": True}, 400),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True, "SERVER_PROTOCOL": "HTTP/1.0"}, 400),
        ({"HTTP_EXPECT": "a miracle"}, 417),
        ({"REQUEST_METHOD": "CONNECT"}, 501),
        ({"HTTP_A": "1", "HTTP_B": "2", "HTTP_C": "3"}, 431),
        ({"SERVER_PROTOCOL": "HTTP/2"}, 411),
    ],
)
def test_heads_are_refused(variables: dict[str, Any], status: int) -> None:
    with pytest.raises(MessageError) as refusal:
        head_of({**BASE, **variables}, Limits(max_head_fields=3))
    assert refusal.value.status_hint == status


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ({}, ""),
        ({"REMOTE_ADDR": None}, ""),
        ({"REMOTE_ADDR": "1.2.3.4"}, "1.2.3.4"),
        ({"REMOTE_ADDR": "1.2.3.4", "REMOTE_PORT": "5"}, "1.2.3.4:5"),
        ({"REMOTE_ADDR": "::1", "REMOTE_PORT": 5}, "[::1]:5"),
    ],
)
def test_the_client_is_named_as_far_as_it_is_known(address: dict[str, Any], client: str) -> None:
    assert client_of(address) == client
