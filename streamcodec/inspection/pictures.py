"""Pictures: a tensor of the shape of an image as a small image, from values that come in windows.

The places of the pixels follow from the shape, so each window gives its part and is forgotten. Values are taken at
equal distances and not averaged: a picture shows what an image is, and is no measurement.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcodec.inspection.report import Picture

_MOST_SIDE: Final = 96
_LEAST_SIDE: Final = 4
_CHANNELS: Final = (1, 3, 4)
_RANK: Final = 3

Values = np.ndarray[Any, Any]


class Sampler:
    """Takes the pixels of one picture out of the values of a tensor."""

    def __init__(self, height: int, width: int, channels: int, *, channels_first: bool, is_octet: bool) -> None:
        """Choose the places of the pixels.

        Args:
            height: rows of the image.
            width: pixels in a row.
            channels: values of a pixel.
            channels_first: whether the tensor is of shape `(channels, height, width)`.
            is_octet: whether values are levels from 0 to 255 already.
        """
        step = max(height, width, _MOST_SIDE) / _MOST_SIDE
        rows = _spread(height, step)[:, None, None]
        columns = _spread(width, step)[None, :, None]
        depth = np.arange(channels)[None, None, :]
        if channels_first:
            places = (depth * height + rows) * width + columns
            places = places.transpose(2, 0, 1)
        else:
            places = (rows * width + columns) * channels + depth
        self._shape: tuple[int, ...] = places.shape
        self._places: Values = places.reshape(-1)  # ascending, as the values come
        self._pixels: Values = np.zeros(self._places.size)
        self._filled = 0
        self._channels_first = channels_first
        self._is_octet = is_octet

    @classmethod
    def of(cls, shape: tuple[int, ...], *, is_octet: bool) -> Sampler | None:
        """Return the sampler for a tensor; None if it does not have the shape of an image.

        That is two dimensions, or three of which the last or the first has 1, 3 or 4 channels. Dimensions of 1 before
        them do not count, and an image has at least 4 rows and columns.
        """
        while len(shape) > _RANK - 1 and shape[0] == 1:
            shape = shape[1:]
        if len(shape) == _RANK - 1:
            shape = (*shape, 1)
        if len(shape) != _RANK:
            return None
        for channels, sides, is_first in ((shape[2], shape[:2], False), (shape[0], shape[1:], True)):
            if channels in _CHANNELS and min(sides) >= _LEAST_SIDE:
                return cls(*sides, channels, channels_first=is_first, is_octet=is_octet)
        return None

    def add(self, first: int, values: Values) -> None:
        """Take the pixels out of values, of which the first has this number in row-major order."""
        begin, end = np.searchsorted(self._places, (first, first + values.size))
        self._pixels[begin:end] = values[self._places[begin:end] - first]
        self._filled = int(end)

    def picture(self) -> Picture | None:
        """Return the picture; None if values are missing."""
        if self._filled < self._pixels.size:
            return None
        pixels = self._pixels.reshape(self._shape)
        if self._channels_first:
            pixels = pixels.transpose(1, 2, 0)
        height, width, channels = pixels.shape
        levels = pixels if self._is_octet else _levels(pixels)
        return Picture(width=width, height=height, channels=channels, data=levels.astype(np.uint8).tobytes())


def _spread(size: int, step: float) -> Values:
    """Return numbers from 0 to `size`, at this distance."""
    count = max(min(size, _LEAST_SIDE), round(size / step))
    return np.arange(count) * size // count


def _levels(pixels: Values) -> Values:
    """Return values as levels from 0 to 255: from the least to the greatest finite one. Others are 0."""
    finite = np.isfinite(pixels)
    low, high = pixels.min(initial=np.inf, where=finite), pixels.max(initial=-np.inf, where=finite)
    if not low < high:
        return np.zeros_like(pixels)
    with np.errstate(all="ignore"):
        scale = high / 255 - low / 255
        return np.where(finite, np.clip((pixels - low) / scale, 0, 255), 0)
