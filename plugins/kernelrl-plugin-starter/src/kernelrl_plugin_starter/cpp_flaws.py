"""The mistakes that are planted in C++ answers; the counterpart of `flaws.py`.

None reads or writes outside its tensors, so what a flawed answer does is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_starter.cpp_frames import CppProgram, Style, cpp_program
from kernelrl_plugin_starter.cpp_vocabulary import MISTAKES
from kernelrl_plugin_starter.frames import Frame, Reference
from kernelrl_plugin_starter.vocabulary import SAME_SHAPE

__all__ = ["CPP_SEMANTIC", "CPP_SYNTACTIC", "CppFlaw"]

_LOOP = "for (int64_t j = 0; j < n; j++)"


@attrs.frozen
class _Answer:
    reference: Reference
    frame: Frame
    style: Style
    program: CppProgram


@attrs.frozen
class CppFlaw:
    """A kind of mistake."""

    name: str
    outcome: Outcome
    plant: Callable[[_Answer], str | None]

    def source(self, reference: Reference, frame: Frame, style: Style) -> str | None:
        """The flawed file, or None where the flaw does not apply."""
        return self.plant(_Answer(reference, frame, style, cpp_program(reference, frame, style)))


def _change(answer: _Answer, **parts: object) -> str:
    return attrs.evolve(answer.program, **parts).source()


def _replaced(answer: _Answer, old: str, new: str) -> str | None:
    """Replace the first place that has a text in the C++ lines."""
    body = answer.program.body
    for i, line in enumerate(body):
        if old in line:
            return _change(answer, body=(*body[:i], line.replace(old, new, 1), *body[i + 1 :]))
    return None


def _short_loop(answer: _Answer) -> str | None:
    if answer.frame in ("flat", "two_flat"):
        return _replaced(answer, "n); i++", "n / 2); i++") or _replaced(answer, "i < n;", "i < n / 2;")
    if answer.frame == "total":
        return _replaced(answer, "j < n;", "j < n / 2;")
    return _replaced(answer, "r < m;", "r < m / 2;")


def _missing_step(answer: _Answer) -> str | None:
    lines = answer.reference.steps
    droppable = [i for i, line in enumerate(lines) if line in SAME_SHAPE]
    if not droppable or answer.frame == "two_flat":
        return None
    last = droppable[-1]
    reference = attrs.evolve(answer.reference, steps=lines[:last] + lines[last + 1 :])
    if not reference.steps and answer.frame not in ("flat", "rows"):
        return None
    return attrs.evolve(cpp_program(reference, answer.frame, answer.style)).source()


def _wrong_step(answer: _Answer) -> str | None:
    # A swapped difference that is squared next is no mistake.
    swapped = "x = x - z" in answer.reference.steps and "x = x * x" in answer.reference.steps
    for right, wrong in MISTAKES.items():
        if right == "x = x - z;" and swapped:
            continue
        found = _replaced(answer, right.replace("LOOP", _LOOP), wrong.replace("LOOP", _LOOP))
        if found is not None:
            return found
    return None


def _wrong_divisor(answer: _Answer) -> str | None:
    return _replaced(answer, "s / n", "s / m")


def _wrong_begin(answer: _Answer) -> str | None:
    for right, wrong in (("s = -1e30;", "s = 1e30;"), ("s = 1e30;", "s = -1e30;"), ("s = 0;", "s = n;")):
        found = _replaced(answer, right, wrong)
        if found is not None:
            return found
    return None


def _same_input(answer: _Answer) -> str | None:
    if answer.frame == "product" or "z" not in answer.program.arguments:
        return None
    return _change(answer, passed=("x", *("x" if name == "z" else name for name in answer.program.passed[1:])))


def _returned_input(answer: _Answer) -> str | None:
    if answer.frame == "two_flat":
        return _replaced(answer, "return {y_, z_};", "return {x_, x_};")
    return _replaced(answer, "return y_;", "return x_;")


def _wrong_dtype(answer: _Answer) -> str | None:
    return None if answer.frame == "two_flat" else _change(answer, result="{}.double()")


def _wrong_shape(answer: _Answer) -> str | None:
    return None if answer.frame == "two_flat" else _change(answer, result="{}[None]")


def _missing_import(answer: _Answer) -> str | None:
    return _change(answer, imports=answer.program.imports[:-1])


def _missing_semicolon(answer: _Answer) -> str | None:
    return _replaced(answer, ">();", ">()")


def _unknown_name(answer: _Answer) -> str | None:
    return _replaced(answer, "auto xp", "auto x")


def _missing_argument(answer: _Answer) -> str | None:
    return _change(answer, passed=answer.program.passed[:-1])


def _open_parenthesis(answer: _Answer) -> str | None:
    return answer.program.source().replace('functions=["kernel"])', 'functions=["kernel"]')


def _missing_colon(answer: _Answer) -> str | None:
    head = answer.program.head
    return answer.program.source().replace(head, head.replace(":\n", "\n"))


def _wrong_class(answer: _Answer) -> str | None:
    return _change(answer, class_name="Model")


def _missing_call(answer: _Answer) -> str | None:
    return _change(answer, call="torch.empty_like(x)", result="{}")


_incorrect = Outcome.INCORRECT

CPP_SEMANTIC: tuple[CppFlaw, ...] = (
    CppFlaw("short_loop", _incorrect, _short_loop),
    CppFlaw("missing_step", _incorrect, _missing_step),
    CppFlaw("wrong_step", _incorrect, _wrong_step),
    CppFlaw("wrong_begin", _incorrect, _wrong_begin),
    CppFlaw("wrong_divisor", _incorrect, _wrong_divisor),
    CppFlaw("same_input", _incorrect, _same_input),
    CppFlaw("returned_input", _incorrect, _returned_input),
    CppFlaw("wrong_dtype", _incorrect, _wrong_dtype),
    CppFlaw("wrong_shape", _incorrect, _wrong_shape),
)
"""The extension builds and runs; its result is wrong."""

CPP_SYNTACTIC: tuple[CppFlaw, ...] = (
    CppFlaw("missing_semicolon", Outcome.COMPILE_ERROR, _missing_semicolon),
    CppFlaw("missing_argument", Outcome.RUNTIME_ERROR, _missing_argument),
    CppFlaw("open_parenthesis", Outcome.FORMAT_ERROR, _open_parenthesis),
    CppFlaw("unknown_name", Outcome.COMPILE_ERROR, _unknown_name),
    CppFlaw("missing_call", Outcome.REJECTED, _missing_call),
    CppFlaw("missing_import", Outcome.COMPILE_ERROR, _missing_import),
    CppFlaw("missing_colon", Outcome.FORMAT_ERROR, _missing_colon),
    CppFlaw("wrong_class", Outcome.FORMAT_ERROR, _wrong_class),
)
"""The file does not parse, build, load or run, or breaks a rule that every prompt states."""
