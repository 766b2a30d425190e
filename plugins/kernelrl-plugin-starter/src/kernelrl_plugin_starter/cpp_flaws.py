"""Flaws: bugs planted in correct C++ kernels; the counterpart of `flaws.py`.

Flawed kernels are deterministic: none reads or writes outside its tensors.
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
class _Kernel:
    reference: Reference
    frame: Frame
    style: Style
    program: CppProgram


@attrs.frozen
class CppFlaw:
    """One kind of bug."""

    name: str
    outcome: Outcome
    plant: Callable[[_Kernel], str | None]

    def source(self, reference: Reference, frame: Frame, style: Style) -> str | None:
        """Source of the flawed kernel, or None where the flaw does not apply."""
        return self.plant(_Kernel(reference, frame, style, cpp_program(reference, frame, style)))


def _change(kernel: _Kernel, **parts: object) -> str:
    return attrs.evolve(kernel.program, **parts).source()


def _replaced(kernel: _Kernel, old: str, new: str) -> str | None:
    """Replace the first occurrence of `old` in the lines of the C++ function; None where there is none."""
    body = kernel.program.body
    for i, line in enumerate(body):
        if old in line:
            return _change(kernel, body=(*body[:i], line.replace(old, new, 1), *body[i + 1 :]))
    return None


def _short_loop(kernel: _Kernel) -> str | None:
    if kernel.frame in ("flat", "two_flat"):
        return _replaced(kernel, "n); i++", "n / 2); i++") or _replaced(kernel, "i < n;", "i < n / 2;")
    if kernel.frame == "total":
        return _replaced(kernel, "j < n;", "j < n / 2;")
    return _replaced(kernel, "r < m;", "r < m / 2;")


def _missing_step(kernel: _Kernel) -> str | None:
    lines = kernel.reference.steps
    droppable = [i for i, line in enumerate(lines) if line in SAME_SHAPE]
    if not droppable or kernel.frame == "two_flat":
        return None
    last = droppable[-1]
    reference = attrs.evolve(kernel.reference, steps=lines[:last] + lines[last + 1 :])
    if not reference.steps and kernel.frame not in ("flat", "rows"):
        return None
    return attrs.evolve(cpp_program(reference, kernel.frame, kernel.style)).source()


def _wrong_step(kernel: _Kernel) -> str | None:
    # Swapping the operands of a difference that is squared next changes nothing.
    swapped = "x = x - z" in kernel.reference.steps and "x = x * x" in kernel.reference.steps
    for right, wrong in MISTAKES.items():
        if right == "x = x - z;" and swapped:
            continue
        found = _replaced(kernel, right.replace("LOOP", _LOOP), wrong.replace("LOOP", _LOOP))
        if found is not None:
            return found
    return None


def _wrong_divisor(kernel: _Kernel) -> str | None:
    return _replaced(kernel, "s / n", "s / m")


def _wrong_begin(kernel: _Kernel) -> str | None:
    for right, wrong in (("s = -1e30;", "s = 1e30;"), ("s = 1e30;", "s = -1e30;"), ("s = 0;", "s = n;")):
        found = _replaced(kernel, right, wrong)
        if found is not None:
            return found
    return None


def _same_input(kernel: _Kernel) -> str | None:
    if kernel.frame == "product" or "z" not in kernel.program.arguments:
        return None
    return _change(kernel, passed=("x", *("x" if name == "z" else name for name in kernel.program.passed[1:])))


def _returned_input(kernel: _Kernel) -> str | None:
    if kernel.frame == "two_flat":
        return _replaced(kernel, "return {y_, z_};", "return {x_, x_};")
    return _replaced(kernel, "return y_;", "return x_;")


def _wrong_dtype(kernel: _Kernel) -> str | None:
    return None if kernel.frame == "two_flat" else _change(kernel, result="{}.double()")


def _wrong_shape(kernel: _Kernel) -> str | None:
    return None if kernel.frame == "two_flat" else _change(kernel, result="{}[None]")


def _missing_import(kernel: _Kernel) -> str | None:
    return _change(kernel, imports=kernel.program.imports[:-1])


def _missing_semicolon(kernel: _Kernel) -> str | None:
    return _replaced(kernel, ">();", ">()")


def _unknown_name(kernel: _Kernel) -> str | None:
    return _replaced(kernel, "auto xp", "auto x")


def _missing_argument(kernel: _Kernel) -> str | None:
    return _change(kernel, passed=kernel.program.passed[:-1])


def _open_parenthesis(kernel: _Kernel) -> str | None:
    return kernel.program.source().replace('functions=["kernel"])', 'functions=["kernel"]')


def _missing_colon(kernel: _Kernel) -> str | None:
    head = kernel.program.head
    return kernel.program.source().replace(head, head.replace(":\n", "\n"))


def _wrong_class(kernel: _Kernel) -> str | None:
    return _change(kernel, class_name="Model")


def _missing_call(kernel: _Kernel) -> str | None:
    return _change(kernel, call="torch.empty_like(x)", result="{}")


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
"""Semantic flaws: the extension builds and is executed; its outputs are wrong."""

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
"""Syntactic flaws: the file does not parse, build, load or execute, or violates a rule that every prompt states."""
