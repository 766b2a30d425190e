"""Flaws: bugs planted in correct Triton kernels, of the same kinds for every task.

Each flaw maps a correct kernel to the source of an incorrect one, or to None where it does not apply. Flawed kernels
are deterministic: none reads or writes outside its tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_starter.frames import Frame, Program, Reference
from kernelrl_plugin_starter.vocabulary import MISTAKES, SAME_SHAPE

__all__ = ["SEMANTIC", "SYNTACTIC", "Flaw"]


@attrs.frozen
class _Kernel:
    reference: Reference
    frame: Frame
    program: Program


@attrs.frozen
class Flaw:
    """One kind of bug."""

    name: str
    outcome: Outcome
    plant: Callable[[_Kernel], str | None]

    def source(self, reference: Reference, frame: Frame, right: Program) -> str | None:
        """Source of the flawed kernel, or None where the flaw does not apply."""
        return self.plant(_Kernel(reference, frame, right))


def _change(kernel: _Kernel, **parts: object) -> str:
    return attrs.evolve(kernel.program, **parts).source()


def _sums_in_blocks(kernel: _Kernel) -> bool:
    """Whether the sum consists of so many blocks that an error in one of them is within the tolerance."""
    return kernel.frame == "total" and kernel.program.grid != "1"


def _short_grid(kernel: _Kernel) -> str | None:
    grid, block = kernel.program.grid, kernel.program.block
    if _sums_in_blocks(kernel) or (kernel.frame in ("flat", "two_flat") and block < 256):
        # Sizes may be multiples of small blocks.
        return None
    short = {f"triton.cdiv(n, {block})": f"n // {block}", f"triton.cdiv(m, {block})": f"m // {block}", "m": "m // 2"}
    return _change(kernel, grid=short[grid]) if grid in short else None


def _one_program(kernel: _Kernel) -> str | None:
    covers_all = (
        kernel.frame == "total"
        or (kernel.frame == "product" and kernel.program.block > 32)
        or kernel.program.loop != ""
    )
    return None if covers_all else _change(kernel, grid="1")


def _missing_step(kernel: _Kernel) -> str | None:
    steps, lines = kernel.program.steps, kernel.reference.steps
    droppable = [i for i, line in enumerate(lines) if line in SAME_SHAPE]
    if not droppable or kernel.frame == "two_flat":
        return None
    last = droppable[-1]
    return _change(kernel, steps=steps[:last] + steps[last + 1 :])


def _wrong_step(kernel: _Kernel) -> str | None:
    steps = kernel.program.steps
    # Swapping the operands of a difference that is squared next changes nothing.
    harmless = [i for i in range(len(steps) - 1) if steps[i : i + 2] == ("x = x - z", "x = x * x")]
    wrong = [i for i, step in enumerate(steps) if step in MISTAKES and i not in harmless]
    if not wrong:
        return None
    first = wrong[0]
    return _change(kernel, steps=(*steps[:first], MISTAKES[steps[first]], *steps[first + 1 :]))


def _in_last_step(kernel: _Kernel, replacements: dict[str, str]) -> str | None:
    """Replace text in the last step that has it."""
    steps = kernel.program.steps
    for i in reversed(range(len(steps))):
        for old, new in replacements.items():
            if old in steps[i]:
                return _change(kernel, steps=(*steps[:i], steps[i].replace(old, new), *steps[i + 1 :]))
    return None


def _wrong_divisor(kernel: _Kernel) -> str | None:
    return _in_last_step(kernel, {"/ n": "/ BLOCK"})


def _wrong_fill(kernel: _Kernel) -> str | None:
    if _sums_in_blocks(kernel):
        return None
    return _in_last_step(kernel, {"-1e9)": "1e9)", "1e9)": "-1e9)", ", 0.0), axis=0)": ", 1.0), axis=0)"})


def _short_block(kernel: _Kernel) -> str | None:
    if kernel.frame == "total" and kernel.program.loop:
        return None
    small = {"rows": 32, "row_value": 32, "lookup": 32, "total": 512, "product": 16}
    return _change(kernel, block=small[kernel.frame]) if kernel.frame in small else None


def _same_input(kernel: _Kernel) -> str | None:
    if "z" not in kernel.program.arguments:
        return None
    launched = tuple("x" if name == "z" else name for name in kernel.program.launch_tensors)
    return None if kernel.frame == "product" else _change(kernel, launch_tensors=launched)


def _returned_input(kernel: _Kernel) -> str | None:
    return _change(kernel, result="x")


def _wrong_dtype(kernel: _Kernel) -> str | None:
    *lines, last = kernel.program.outputs
    for old in ("dtype=torch.bool", "dtype=torch.int64", "dtype=x.dtype", "dtype=self.table.dtype"):
        if old in last:
            return _change(kernel, outputs=(*lines, last.replace(old, "dtype=torch.float64")))
    return _change(kernel, outputs=(*lines, last.replace("(x)", "(x, dtype=torch.float64)")))


def _wrong_shape(kernel: _Kernel) -> str | None:
    return _change(kernel, result=f"{kernel.program.result}[None]")


def _missing_import(kernel: _Kernel) -> str | None:
    return _change(kernel, imports=kernel.program.imports[:-1])


def _unknown_block(kernel: _Kernel) -> str | None:
    return _change(kernel, launch_block="BLOCK")


def _missing_argument(kernel: _Kernel) -> str | None:
    return _change(kernel, launch_numbers=kernel.program.launch_numbers[1:])


def _open_parenthesis(kernel: _Kernel) -> str | None:
    launch = kernel.program.launch
    return kernel.program.source().replace(launch, launch.removesuffix(")"))


def _missing_colon(kernel: _Kernel) -> str | None:
    head = f"def forward(self, {', '.join(kernel.program.arguments)})"
    return kernel.program.source().replace(f"{head}:", head)


def _wrong_class(kernel: _Kernel) -> str | None:
    return _change(kernel, class_name="Model")


def _missing_launch(kernel: _Kernel) -> str | None:
    return _change(kernel, grid="")


def _library_call(kernel: _Kernel) -> str | None:
    if not any("torch." in line or "self.linear" in line or "dim=1" in line for line in kernel.reference.steps):
        return None
    steps = "".join(f"        {line}\n" for line in kernel.reference.steps)
    forward = f"    def forward({', '.join(['self', *kernel.program.arguments])}):\n"
    result = "y, z" if kernel.frame == "two_flat" else kernel.program.result.replace("y", "x", 1)
    return f"{kernel.program.source().partition(forward)[0]}{forward}{steps}        return {result}\n"


_incorrect = Outcome.INCORRECT

SEMANTIC: tuple[Flaw, ...] = (
    Flaw("short_grid", _incorrect, _short_grid),
    Flaw("missing_step", _incorrect, _missing_step),
    Flaw("wrong_step", _incorrect, _wrong_step),
    Flaw("wrong_fill", _incorrect, _wrong_fill),
    Flaw("one_program", _incorrect, _one_program),
    Flaw("wrong_divisor", _incorrect, _wrong_divisor),
    Flaw("short_block", _incorrect, _short_block),
    Flaw("same_input", _incorrect, _same_input),
    Flaw("returned_input", _incorrect, _returned_input),
    Flaw("wrong_dtype", _incorrect, _wrong_dtype),
    Flaw("wrong_shape", _incorrect, _wrong_shape),
)
"""Semantic flaws: the file loads and is executed; its outputs are wrong."""

SYNTACTIC: tuple[Flaw, ...] = (
    Flaw("missing_import", Outcome.COMPILE_ERROR, _missing_import),
    Flaw("unknown_block", Outcome.RUNTIME_ERROR, _unknown_block),
    Flaw("open_parenthesis", Outcome.FORMAT_ERROR, _open_parenthesis),
    Flaw("missing_argument", Outcome.RUNTIME_ERROR, _missing_argument),
    Flaw("missing_launch", Outcome.REJECTED, _missing_launch),
    Flaw("missing_colon", Outcome.FORMAT_ERROR, _missing_colon),
    Flaw("library_call", Outcome.REJECTED, _library_call),
    Flaw("wrong_class", Outcome.FORMAT_ERROR, _wrong_class),
)
"""Syntactic flaws: the file does not parse, load or execute, or violates a rule that every prompt states."""
