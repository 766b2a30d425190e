"""The mistakes that are planted in answers: the same kinds in every task.

Each flaw turns the program of a right answer into the text of a wrong one, or into None where it does not apply. What a
flawed answer does is the same every time: none reads or writes outside its tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_starter.frames import Frame, Program, Reference
from kernelrl_plugin_starter.vocabulary import MISTAKES, SAME_SHAPE

__all__ = ["SEMANTIC", "SYNTACTIC", "Flaw"]


@attrs.frozen
class _Answer:
    reference: Reference
    frame: Frame
    program: Program


@attrs.frozen
class Flaw:
    """A kind of mistake."""

    name: str
    outcome: Outcome
    plant: Callable[[_Answer], str | None]

    def source(self, reference: Reference, frame: Frame, right: Program) -> str | None:
        """The flawed file, or None where the flaw does not apply."""
        return self.plant(_Answer(reference, frame, right))


def _change(answer: _Answer, **parts: object) -> str:
    return attrs.evolve(answer.program, **parts).source()


def _sums_in_blocks(answer: _Answer) -> bool:
    """Whether a sum is made of so many blocks that a mistake in one of them is lost in the tolerance."""
    return answer.frame == "total" and answer.program.grid != "1"


def _short_grid(answer: _Answer) -> str | None:
    grid, block = answer.program.grid, answer.program.block
    if _sums_in_blocks(answer) or (answer.frame in ("flat", "two_flat") and block < 256):
        # Sizes may be multiples of small blocks.
        return None
    short = {f"triton.cdiv(n, {block})": f"n // {block}", f"triton.cdiv(m, {block})": f"m // {block}", "m": "m // 2"}
    return _change(answer, grid=short[grid]) if grid in short else None


def _one_program(answer: _Answer) -> str | None:
    covers_all = (
        answer.frame == "total"
        or (answer.frame == "product" and answer.program.block > 32)
        or answer.program.loop != ""
    )
    return None if covers_all else _change(answer, grid="1")


def _missing_step(answer: _Answer) -> str | None:
    steps, lines = answer.program.steps, answer.reference.steps
    droppable = [i for i, line in enumerate(lines) if line in SAME_SHAPE]
    if not droppable or answer.frame == "two_flat":
        return None
    last = droppable[-1]
    return _change(answer, steps=steps[:last] + steps[last + 1 :])


def _wrong_step(answer: _Answer) -> str | None:
    steps = answer.program.steps
    # A swapped difference that is squared next is no mistake.
    harmless = [i for i in range(len(steps) - 1) if steps[i : i + 2] == ("x = x - z", "x = x * x")]
    wrong = [i for i, step in enumerate(steps) if step in MISTAKES and i not in harmless]
    if not wrong:
        return None
    first = wrong[0]
    return _change(answer, steps=(*steps[:first], MISTAKES[steps[first]], *steps[first + 1 :]))


def _in_last_step(answer: _Answer, replacements: dict[str, str]) -> str | None:
    """Replace text in the last step that has it."""
    steps = answer.program.steps
    for i in reversed(range(len(steps))):
        for old, new in replacements.items():
            if old in steps[i]:
                return _change(answer, steps=(*steps[:i], steps[i].replace(old, new), *steps[i + 1 :]))
    return None


def _wrong_divisor(answer: _Answer) -> str | None:
    return _in_last_step(answer, {"/ n": "/ BLOCK"})


def _wrong_fill(answer: _Answer) -> str | None:
    if _sums_in_blocks(answer):
        return None
    return _in_last_step(answer, {"-1e9)": "1e9)", "1e9)": "-1e9)", ", 0.0), axis=0)": ", 1.0), axis=0)"})


def _short_block(answer: _Answer) -> str | None:
    if answer.frame == "total" and answer.program.loop:
        return None
    small = {"rows": 32, "row_value": 32, "lookup": 32, "total": 512, "product": 16}
    return _change(answer, block=small[answer.frame]) if answer.frame in small else None


def _same_input(answer: _Answer) -> str | None:
    if "z" not in answer.program.arguments:
        return None
    launched = tuple("x" if name == "z" else name for name in answer.program.launch_tensors)
    return None if answer.frame == "product" else _change(answer, launch_tensors=launched)


def _returned_input(answer: _Answer) -> str | None:
    return _change(answer, result="x")


def _wrong_dtype(answer: _Answer) -> str | None:
    *lines, last = answer.program.outputs
    for old in ("dtype=torch.bool", "dtype=torch.int64", "dtype=x.dtype", "dtype=self.table.dtype"):
        if old in last:
            return _change(answer, outputs=(*lines, last.replace(old, "dtype=torch.float64")))
    return _change(answer, outputs=(*lines, last.replace("(x)", "(x, dtype=torch.float64)")))


def _wrong_shape(answer: _Answer) -> str | None:
    return _change(answer, result=f"{answer.program.result}[None]")


def _missing_import(answer: _Answer) -> str | None:
    return _change(answer, imports=answer.program.imports[:-1])


def _unknown_block(answer: _Answer) -> str | None:
    return _change(answer, launch_block="BLOCK")


def _missing_argument(answer: _Answer) -> str | None:
    return _change(answer, launch_numbers=answer.program.launch_numbers[1:])


def _open_parenthesis(answer: _Answer) -> str | None:
    launch = answer.program.launch
    return answer.program.source().replace(launch, launch.removesuffix(")"))


def _missing_colon(answer: _Answer) -> str | None:
    head = f"def forward(self, {', '.join(answer.program.arguments)})"
    return answer.program.source().replace(f"{head}:", head)


def _wrong_class(answer: _Answer) -> str | None:
    return _change(answer, class_name="Model")


def _missing_launch(answer: _Answer) -> str | None:
    return _change(answer, grid="")


def _library_call(answer: _Answer) -> str | None:
    if not any("torch." in line or "self.linear" in line or "dim=1" in line for line in answer.reference.steps):
        return None
    steps = "".join(f"        {line}\n" for line in answer.reference.steps)
    forward = f"    def forward({', '.join(['self', *answer.program.arguments])}):\n"
    result = "y, z" if answer.frame == "two_flat" else answer.program.result.replace("y", "x", 1)
    return f"{answer.program.source().partition(forward)[0]}{forward}{steps}        return {result}\n"


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
"""The file loads and runs; its result is wrong."""

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
"""The file does not parse, load or run, or breaks a rule that every prompt states."""
