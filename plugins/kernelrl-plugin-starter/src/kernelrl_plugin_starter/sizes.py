"""Larger input sizes for the same tasks, so that kernels can be timed on a CPU or a GPU."""

from __future__ import annotations

import itertools
import re

from kernelrl_plugin_starter.config import Size
from kernelrl_plugin_starter.frames import Frame

__all__ = ["enlarged"]

_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_SHAPE = re.compile(r"(?<=torch\.randn\()[^)]*|(?<=torch\.randint\().*(?=\)\])")

_Factors = dict[Frame, tuple[tuple[int, ...], ...]]

_LARGE: _Factors = {
    "flat": ((400,), (20, 20)),
    "two_flat": ((400,),),
    "total": ((100,), (10, 10)),
    "rows": ((10,), (100, 10)),
    "row_value": ((10,), (100, 10)),
    "product": ((8, 8),),
    "lookup": ((10, 10), (1, 10, 100)),
}
_HUGE: _Factors = {
    "flat": ((17_000,), (136, 125)),
    "two_flat": ((17_000,),),
    "total": ((17_000,), (136, 125)),
    "rows": ((16,), (3500, 16)),
    "row_value": ((16,), (3500, 16)),
    "product": ((20_001, 1),),
    "lookup": ((100, 16), (1, 100, 2500)),
}
"""Sizes are multiples of 16, so that Triton vectorises, and never of 1024. A matrix product has many rows and a second
factor that fits into one block."""


def enlarged(source: str, frame: Frame, size: Size) -> str:
    """Return the reference with larger inputs and parameters; nothing else changes.

    `large`: about 400,000 elements for `flat` and 80,000 for `total`; about 700 rows of 500 elements; about ten million
    multiplications per matrix product. `huge`: about 17 million elements in every frame, in rows of 640 to 960.
    """
    head, mark, tail = source.partition("def get_inputs")
    inputs, init_mark, init = tail.partition("def get_init_inputs")
    factors = (_HUGE if size == "huge" else _LARGE)[frame]
    only_first = size == "huge" and frame == "product"
    places = itertools.count()

    def larger(match: re.Match[str]) -> str:
        return match[0] if only_first and next(places) else _larger(match[0], factors)

    inputs = _SHAPE.sub(larger, inputs)
    init = re.sub(r"(?<=\[)[\d, ]+(?=\])", larger, init)
    return f"{head}{mark}{inputs}{init_mark}{init}"


def _larger(shape: str, factors: tuple[tuple[int, ...], ...]) -> str:
    count = len(_INTEGER.findall(shape))
    left = iter(next(chosen for chosen in factors if len(chosen) == count))
    return _INTEGER.sub(lambda match: str(int(match[0]) * next(left)), shape)
