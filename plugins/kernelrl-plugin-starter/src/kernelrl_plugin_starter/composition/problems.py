"""A composition with its dtype, sizes and constants, and the source of its reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import attrs

from kernelrl_plugin_starter.composition.grammar import Composition, name_of
from kernelrl_plugin_starter.composition.parts import Operand
from kernelrl_plugin_starter.composition.values import DRAWN

__all__ = ["DTYPES", "Dtype", "Frame", "Problem", "frame_of", "problem"]

Dtype = Literal["float32", "float16", "bfloat16"]
DTYPES: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")

Frame = Literal["flat", "rows", "product"]
"""What one program of a kernel works on: a block of elements, a row, or a block of rows of a matrix product."""

_COLUMNS = (496, 624, 752, 880, 1008, 1264, 1520, 1776, 2032)
"""Multiples of 16, so that Triton vectorises, and none is a block size."""
_ELEMENTS = 8_000_000
"""Elements of the input of a GPU's size: tens of microseconds for each pass over them on an H100."""
_SMALL_COLUMNS = (40, 48, 56)
_SMALL_ROWS = 6
_INNER = (32, 64)
_OUTER = (32, 64, 128)
_DRAWS = ("", " * 2.0", " + 0.5", " * 1.5 + 0.5")
_FACTORS = (0.25, 0.5, 0.75, 1.5)
_TERMS = (0.25, 0.5, 0.75, 1.5)


@attrs.frozen
class Problem:
    """A composition with everything that its reference and its kernels need."""

    composition: Composition
    dtype: Dtype
    rows: int
    """Number of rows of `x`; elements if the frame is `flat`."""
    columns: int
    """Number of columns of `x`; 1 if the frame is `flat`."""
    outer: int
    """Number of columns of the result; other than `columns` after a matrix product only."""
    draw: str
    """How the normally distributed `x` is scaled and shifted."""
    constants: dict[str, str]
    """Constants of the parts, by the names of the parts."""

    @property
    def frame(self) -> Frame:
        """What one program of a kernel works on."""
        return frame_of(self.composition)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The further inputs."""
        return operands_of(self.composition)

    def reference(self) -> str:
        """Source in KernelBench's format."""
        lines = [self.constant(line, part.name) for part in self.composition for line in part.reference]
        arguments = ", ".join(("x", *self.operands))
        return (
            "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
            f"    def forward(self, {arguments}):\n"
            + "".join(f"        {line}\n" for line in lines)
            + "        return x\n\n\ndef get_inputs():\n"
            f"    return [{', '.join(self._inputs())}]\n\n\ndef get_init_inputs():\n    return []\n"
        )

    def constant(self, line: str, part: str) -> str:
        """A line of a part with its constant."""
        return line.replace("C", self.constants[part]) if part in self.constants else line

    def _inputs(self) -> list[str]:
        dtype = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        flat = self.frame == "flat"
        transposed = any(part.name == "matmul_t" for part in self.composition)
        shapes = {
            "z": f"{self.rows}" if flat else f"{self.rows}, {self.outer}",
            "w": f"{self.outer}",
            "s": f"{self.rows}, 1",
            "a": f"{self.outer}, {self.columns}" if transposed else f"{self.columns}, {self.outer}",
        }
        x = f"{self.rows}" if flat else f"{self.rows}, {self.columns}"
        scale = {32: " * 0.2", 64: " * 0.125"}
        return [
            f"torch.randn({x}{dtype}){self.draw}",
            *(
                f"torch.randn({shapes[operand]}{dtype}){scale.get(self.columns, ' * 0.2') if operand == 'a' else ''}"
                for operand in self.operands
            ),
        ]


def operands_of(composition: Composition) -> tuple[Operand, ...]:
    """The further inputs of a composition in the order of the arguments."""
    needed = {part.operand for part in composition}
    order: tuple[Operand, ...] = ("a", "z", "w", "s")
    return tuple(operand for operand in order if operand in needed)


def frame_of(composition: Composition) -> Frame:
    """What one program of a kernel for these parts works on."""
    kinds = {part.kind for part in composition}
    if "product" in kinds:
        return "product"
    by_row = kinds & {"row", "scan", "reduction"} or {"w", "s"} & set(operands_of(composition))
    return "rows" if by_row else "flat"


def problem(composition: Composition, size: Literal["small", "huge"], dtypes: Sequence[Dtype], seed: int) -> Problem:
    """The problem of a composition: always the same for the same arguments. Only the sizes depend on `size`."""
    draw = random.Random(f"{seed} {name_of(composition)}")
    fitting = [dtype for dtype in dtypes if dtype in _dtypes(composition)] or ["float32"]
    dtype = draw.choice(fitting)
    constants = {"scale": str(draw.choice(_FACTORS)), "shift": str(draw.choice(_TERMS))}
    distribution = draw.choice(_DRAWS)
    frame = frame_of(composition)
    columns = draw.choice(_COLUMNS)
    small_columns = draw.choice(_SMALL_COLUMNS)
    inner = draw.choice(_INNER)
    outer = draw.choice(_OUTER)
    if frame == "product":
        rows = 70 if size == "small" else _ELEMENTS // 64 + 24
        return Problem(composition, dtype, rows, inner, outer, distribution, constants)
    if frame == "flat":
        elements = 16 * columns + 16 * small_columns if size == "small" else _ELEMENTS + 16 * columns
        return Problem(composition, dtype, elements, 1, 1, distribution, constants)
    if size == "small":
        return Problem(composition, dtype, _SMALL_ROWS, small_columns, small_columns, distribution, constants)
    return Problem(composition, dtype, _ELEMENTS // columns, columns, columns, distribution, constants)


def _dtypes(composition: Composition) -> tuple[Dtype, ...]:
    """The dtypes in which a composition keeps its meaning.

    float16 overflows in squares of large values. A scan, or a number for each row that hardly varies, needs float32.
    """
    if any(part.kind in ("scan", "reduction") for part in composition):
        return ("float32",)
    value = DRAWN
    for part in composition:
        value = part.after(value)
        if value.size == "wide":
            return ("float32", "bfloat16")
    return DTYPES
