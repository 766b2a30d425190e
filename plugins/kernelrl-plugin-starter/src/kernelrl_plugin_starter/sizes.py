"""Large sizes: the same tasks with inputs on which run times can be measured on a processor."""

from __future__ import annotations

import re

from kernelrl_plugin_starter.frames import Frame

__all__ = ["enlarged"]

_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_SHAPE = re.compile(r"(?<=torch\.randn\()[^)]*|(?<=torch\.randint\().*(?=\)\])")


def enlarged(source: str, frame: Frame) -> str:
    """A reference with larger inputs and parameters; nothing else changes.

    `flat` and `total` get some 400,000 and 80,000 elements, rows become 500 long and about 700, products take some ten
    million multiplications.
    """
    head, mark, tail = source.partition("def get_inputs")
    inputs, init_mark, init = tail.partition("def get_init_inputs")
    inputs = _SHAPE.sub(lambda match: _larger(match[0], frame), inputs)
    init = re.sub(r"(?<=\[)[\d, ]+(?=\])", lambda match: _larger(match[0], frame), init)
    return f"{head}{mark}{inputs}{init_mark}{init}"


def _larger(shape: str, frame: Frame) -> str:
    count = len(_INTEGER.findall(shape))
    factors = {
        "flat": (400,) if count == 1 else (20, 20),
        "two_flat": (400,),
        "total": (100,) if count == 1 else (10, 10),
        "rows": (10,) if count == 1 else (100, 10),
        "row_value": (10,) if count == 1 else (100, 10),
        "product": (8, 8),
        "lookup": (10, 10) if count == 2 else (1, 10, 100),
    }[frame]
    left = iter(factors)
    return _INTEGER.sub(lambda match: str(int(match[0]) * next(left)), shape)
