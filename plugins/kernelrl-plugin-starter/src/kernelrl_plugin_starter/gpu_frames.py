"""Correct Triton kernels for inputs of many millions of elements: a fast, a middling and a slow one.

The slow ones have common defects: blocks far too small, or much larger than a row, so that most of the GPU idles;
strided access; a few programs that process one row after the other. The names state the intent; the actual order of
speed has to be measured.
"""

from __future__ import annotations

import attrs

from kernelrl_plugin_starter.frames import Frame, Program, Reference, program

__all__ = ["gpu_programs"]

_PROGRAMS = 16
"""Grid size of a kernel that processes its rows or blocks one by one; a GPU runs thousands of programs concurrently."""

_BLOCKS: dict[Frame, tuple[int, int, int]] = {
    "flat": (1024, 64, 1024),
    "two_flat": (1024, 64, 1024),
    "total": (4096, 256, 1024),
    "rows": (1024, 4096, 1024),
    "row_value": (1024, 4096, 1024),
    "lookup": (1024, 4096, 1024),
    "product": (32, 64, 32),
}
"""Block sizes of the fast, the middling and the slow kernel."""


def gpu_programs(reference: Reference, frame: Frame) -> list[Program]:
    """The correct kernels: fast, middling, slow."""
    fast, middling, slow = (program(reference, frame, block) for block in _BLOCKS[frame])
    if frame in ("flat", "two_flat"):
        scattered = "offs = tl.arange(0, BLOCK) * tl.num_programs(0) + tl.program_id(0)"
        return [
            fast,
            attrs.evolve(middling, num_warps=1),
            attrs.evolve(slow, address=(scattered, *slow.address[1:])),
        ]
    if frame == "total":
        return [_summed(fast), _summed(middling), _one_by_one(_summed(slow), frame)]
    return [fast, middling, _one_by_one(slow, frame)]


def _summed(whole: Program) -> Program:
    """A sum over blocks instead of one program for all elements."""
    return attrs.evolve(
        whole,
        stores=("tl.atomic_add(y_ptr, x)",),
        outputs=(*whole.outputs[:-1], whole.outputs[-1].replace("empty", "zeros")),
        grid=f"triton.cdiv(n, {whole.block})",
    )


def _one_by_one(parallel: Program, frame: Frame) -> Program:
    """A kernel with a few programs that process one row, or one block, after the other."""
    _, *address = parallel.address
    if frame in ("total", "product"):
        count, place = ("n", "offs") if frame == "total" else ("m", "i")
        blocks = "tl.arange(0, BLOCK)" if frame == "total" else "tl.arange(0, BLOCK)[:, None]"
        return attrs.evolve(
            parallel,
            loop=f"for start in range(tl.program_id(0) * BLOCK, {count}, tl.num_programs(0) * BLOCK):",
            address=(f"{place} = start + {blocks}", *address),
            grid=str(_PROGRAMS),
        )
    return attrs.evolve(
        parallel,
        numbers=(*parallel.numbers, "m"),
        launch_numbers=(*parallel.launch_numbers, "m"),
        loop="for row in range(tl.program_id(0), m, tl.num_programs(0)):",
        address=tuple(address),
        grid=str(_PROGRAMS),
    )
