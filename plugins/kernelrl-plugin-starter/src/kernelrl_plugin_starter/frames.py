"""Frames: the fixed parts (loads, stores, grid) of the Triton kernels in the demonstrations.

flat      one program per block of elements            elementwise
total     one program for all elements                 reduction to a scalar
rows      one program per row                          row-wise normalisation and scans
row_value one program per row, one value each          row-wise reductions
product   one program per block of rows                small matrix products
two_flat  `flat` with two outputs
lookup    one program per index of a table
"""

from __future__ import annotations

import ast
from typing import Literal

import attrs

from kernelrl_plugin_starter.vocabulary import TRANSLATIONS

__all__ = ["BLOCKS", "Frame", "Program", "Reference", "program", "read_reference"]

Frame = Literal["flat", "total", "rows", "row_value", "product", "two_flat", "lookup"]

BLOCKS: dict[Frame, tuple[int, ...]] = {
    "flat": (256, 512),
    "total": (1024, 2048),
    "rows": (64, 128),
    "row_value": (64, 128),
    "product": (32, 64),
    "two_flat": (256, 512),
    "lookup": (64, 128),
}
"""Block sizes of the correct kernels. Every task has more elements than one block of `flat` and fewer columns than one
block of `rows`, and no size is a multiple of its block."""


@attrs.frozen
class Reference:
    """The parts of a reference that its kernels are built from."""

    arguments: tuple[str, ...]
    """Arguments of `forward`."""
    steps: tuple[str, ...]
    """Lines of `forward` before its return statement."""
    constructor: str
    """Text of `__init__` with its indentation, or empty."""


def read_reference(source: str) -> Reference:
    """Parse a reference; nothing is executed."""
    model = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    forward = methods["forward"]
    steps = tuple(ast.get_source_segment(source, node) or "" for node in forward.body[:-1])
    init = methods.get("__init__")
    text = "" if init is None else "    " + (ast.get_source_segment(source, init) or "") + "\n"
    return Reference(tuple(argument.arg for argument in forward.args.args[1:]), steps, text)


@attrs.frozen
class Program:
    """A correct kernel in parts, so that a flaw can change one of them."""

    tensors: tuple[str, ...]
    """Names of the kernel's tensors; each is the pointer `<name>_ptr`, outputs last."""
    numbers: tuple[str, ...]
    """Names of its scalar arguments."""
    address: tuple[str, ...]
    """Lines that compute the offsets of the program."""
    loads: tuple[str, ...]
    steps: tuple[str, ...]
    stores: tuple[str, ...]
    constructor: str
    """Text of `__init__`, or empty."""
    arguments: tuple[str, ...]
    """Arguments of `forward`."""
    outputs: tuple[str, ...]
    """Lines that read sizes and allocate outputs."""
    grid: str
    launch_tensors: tuple[str, ...]
    """Expressions passed for `tensors`."""
    launch_numbers: tuple[str, ...]
    """Expressions passed for `numbers`."""
    block: int
    result: str
    """Expression that `forward` returns."""
    imports: tuple[str, ...] = (
        "import torch",
        "import torch.nn as nn",
        "import triton",
        "import triton.language as tl",
    )
    class_name: str = "ModelNew"
    launch_block: str = ""
    """Expression passed for `BLOCK`; empty: the block size."""
    num_warps: int | None = None
    """Warps per program; None: Triton's default."""
    loop: str = ""
    """Head of a loop around all lines of the kernel, or empty."""

    @property
    def launch(self) -> str:
        """The line that launches the kernel."""
        options = (
            f"BLOCK={self.launch_block or self.block}",
            *([f"num_warps={self.num_warps}"] if self.num_warps else []),
        )
        return f"kernel[({self.grid},)]({', '.join((*self.launch_tensors, *self.launch_numbers, *options))})"

    def source(self) -> str:
        """The whole file."""
        pointers = [f"{name}_ptr" for name in self.tensors]
        body = [*self.address, *self.loads, *self.steps, *self.stores]
        if self.loop:
            body = [self.loop, *(f"    {line}" for line in body)]
        forward = [*self.outputs, *([self.launch] if self.grid else []), f"return {self.result}"]
        return "".join(
            [
                *(f"{line}\n" for line in self.imports),
                "\n\n@triton.jit\n",
                f"def kernel({', '.join([*pointers, *self.numbers])}, BLOCK: tl.constexpr):\n",
                *(f"    {line}\n" for line in body),
                f"\n\nclass {self.class_name}(nn.Module):\n",
                self.constructor + ("\n" if self.constructor else ""),
                f"    def forward({', '.join(['self', *self.arguments])}):\n",
                *(f"        {line}\n" for line in forward),
            ]
        )


def program(reference: Reference, frame: Frame, block: int) -> Program:
    """The correct kernel for a frame and a block size."""
    build = {"product": _product, "two_flat": _two_flat, "lookup": _lookup}.get(frame)
    if build is not None:
        return build(reference, block)
    return _elements(reference, frame, block)


def _elements(reference: Reference, frame: Frame, block: int) -> Program:
    """`flat`, `total`, `rows` and `row_value`."""
    by_row = frame in ("rows", "row_value")
    if by_row:
        address = ("row = tl.program_id(0)", "offs = tl.arange(0, BLOCK)", "mask = offs < n")
    else:
        address = ("offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = offs < n")
    place = "row * n + offs" if by_row else "offs"
    vectors = tuple(name for name in ("scale", "bias") if f"self.{name} = nn" in reference.constructor)
    factor = ("factor",) if "self.factor" in reference.constructor else ()
    store = {"total": "tl.store(y_ptr, x)", "row_value": "tl.store(y_ptr + row, x)"}
    return Program(
        tensors=(*reference.arguments, *vectors, "y"),
        numbers=("n", *factor),
        address=address,
        loads=(
            *(f"{name} = tl.load({name}_ptr + {place}, mask=mask)" for name in reference.arguments),
            *(f"{name} = tl.load({name}_ptr + offs, mask=mask)" for name in vectors),
        ),
        steps=tuple(TRANSLATIONS[step] for step in reference.steps),
        stores=(store.get(frame, f"tl.store(y_ptr + {place}, x, mask=mask)"),),
        constructor=reference.constructor,
        arguments=reference.arguments,
        outputs=_outputs(reference, frame),
        grid={"flat": f"triton.cdiv(n, {block})", "total": "1"}.get(frame, "m"),
        launch_tensors=(*reference.arguments, *(f"self.{name}" for name in vectors), "y"),
        launch_numbers=("n", *(f"self.{name}" for name in factor)),
        block=block,
        result="y",
    )


def _outputs(reference: Reference, frame: Frame) -> tuple[str, ...]:
    if frame == "total":
        return ("n = x.numel()", "y = torch.empty((), dtype=x.dtype, device=x.device)")
    if frame == "row_value":
        dtype = "torch.int64" if "argmax" in reference.steps[-1] else "x.dtype"
        return ("m, n = x.shape", f"y = torch.empty(m, dtype={dtype}, device=x.device)")
    size = "m, n = x.shape" if frame == "rows" else "n = x.numel()"
    return (
        size,
        "y = torch.empty_like(x, dtype=torch.bool)" if ">" in reference.steps[-1][:9] else "y = torch.empty_like(x)",
    )


def _product(reference: Reference, block: int) -> Program:
    linear = "self.linear" in reference.constructor
    transposed = linear or "z.T" in reference.steps[0]
    weight = "self.linear.weight" if linear else "z"
    return Program(
        tensors=("x", "z", "bias", "y") if linear else ("x", "z", "y"),
        numbers=("m", "n", "k"),
        address=(
            "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]",
            "j = tl.arange(0, BLOCK)[None, :]",
            "t = tl.arange(0, BLOCK)[:, None]",
            "mask = (i < m) & (j < n)",
        ),
        loads=(
            "x = tl.load(x_ptr + i * k + j, mask=(i < m) & (j < k), other=0.0)",
            f"z = tl.load(z_ptr + {'j * k + t' if transposed else 't * n + j'}, mask=(t < k) & (j < n), other=0.0)",
            *(("bias = tl.load(bias_ptr + j, mask=j < n)",) if linear else ()),
        ),
        steps=tuple(TRANSLATIONS[step] for step in reference.steps),
        stores=("tl.store(y_ptr + i * n + j, x, mask=mask)",),
        constructor=reference.constructor,
        arguments=reference.arguments,
        outputs=(
            "m, k = x.shape",
            f"n = {weight}.shape[{0 if transposed else 1}]",
            "y = torch.empty(m, n, dtype=x.dtype, device=x.device)",
        ),
        grid=f"triton.cdiv(m, {block})",
        launch_tensors=("x", weight, "self.linear.bias", "y") if linear else ("x", "z", "y"),
        launch_numbers=("m", "n", "k"),
        block=block,
        result="y",
    )


def _two_flat(reference: Reference, block: int) -> Program:
    one = _elements(attrs.evolve(reference, steps=("x = x + 1.0",)), "flat", block)
    return attrs.evolve(
        one,
        tensors=("x", "y", "z"),
        steps=("y = tl.maximum(x, 0.0)", "z = x * x"),
        stores=("tl.store(y_ptr + offs, y, mask=mask)", "tl.store(z_ptr + offs, z, mask=mask)"),
        outputs=("n = x.numel()", "y = torch.empty_like(x)", "z = torch.empty_like(x)"),
        launch_tensors=("x", "y", "z"),
        result="y, z",
    )


def _lookup(reference: Reference, block: int) -> Program:
    rows = _elements(attrs.evolve(reference, steps=("x = x + 1.0",)), "rows", block)
    return attrs.evolve(
        rows,
        tensors=("x", "table", "y"),
        loads=("i = tl.load(x_ptr + row)", "x = tl.load(table_ptr + i * n + offs, mask=mask)"),
        steps=(),
        outputs=(
            "m = x.numel()",
            "n = self.table.shape[1]",
            "y = torch.empty(m, n, dtype=self.table.dtype, device=x.device)",
        ),
        launch_tensors=("x", "self.table", "y"),
    )
