"""Fields that somebody wants to send: those that no head can have are refused, and their values are not quoted."""

from __future__ import annotations

import pytest

from streamcodec import LocalProtocolError
from streamcodec.http.writing import check_field


@pytest.mark.parametrize("value", ["", "a", "a b", "a\tb", "Bearer abc", "(~)"])
def test_fields_that_can_be_sent(value: str) -> None:
    check_field("X-Any", value)


@pytest.mark.parametrize("name", ["", "X Y", "X:", "X\r\nY", "Größe", "X\0", "(X)", "x" * 100 + " "])
def test_names_that_cannot(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be the name of a field") as caught:
        check_field(name, "secret")
    assert len(str(caught.value)) < 120
    assert str(caught.value).isascii() or name == "Größe"


@pytest.mark.parametrize(
    "value", ["secret\n", "\r\nsecret: x", "a\rsecret", "secret\0", " secret", "secret ", "sécret", "\x7fsecret"]
)
def test_values_that_cannot_are_not_quoted(value: str) -> None:
    with pytest.raises(LocalProtocolError, match="the value of the field 'X-Any' is not allowed") as caught:
        check_field("X-Any", value)
    assert "cret" not in str(caught.value)
