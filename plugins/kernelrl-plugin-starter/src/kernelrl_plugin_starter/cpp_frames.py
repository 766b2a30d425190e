"""Correct C++ kernels: a reference translated into loops, in a fast, a middling and a slow style.

The slow styles have common defects: double precision, one loop per line, sums that the compiler may not reorder,
strided access. All styles are correct, and `fast` is at least as fast as the others.
"""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_plugin_starter.cpp_vocabulary import ELEMENTS, REDUCTIONS, Reduction
from kernelrl_plugin_starter.frames import Frame, Reference

__all__ = ["STYLES", "CppProgram", "Style", "cpp_program"]

Style = Literal["fast", "middling", "slow"]
STYLES: tuple[Style, ...] = ("fast", "middling", "slow")
"""Styles of the correct kernels."""

_LOOP = "for (int64_t j = 0; j < n; j++)"
_PART = 4096
"""Elements per block of the fast and the middling style. Every frame has two nested loops, so that each statement on an
element has the same indentation everywhere: a model trained from scratch learns it once."""
_STRIDE = 16
"""Stride of the slow style: each of the 16 passes over the data touches every cache line."""


@attrs.frozen
class CppProgram:
    """A correct kernel in parts, so that a flaw can change one of them."""

    parameters: tuple[str, ...]
    """Parameters of the C++ function."""
    returned: str
    """Return type of the C++ function."""
    body: tuple[str, ...]
    """Lines of the C++ function."""
    constructor: str
    """Text of `__init__`, or empty."""
    arguments: tuple[str, ...]
    """Arguments of `forward`."""
    passed: tuple[str, ...]
    """Expressions passed for `parameters`."""
    result: str = "{}"
    """Expression that `forward` returns; `{}` is replaced by the call."""
    imports: tuple[str, ...] = (
        "import torch",
        "import torch.nn as nn",
        "from torch.utils.cpp_extension import load_inline",
    )
    class_name: str = "ModelNew"
    call: str = "ext.kernel({})"

    @property
    def head(self) -> str:
        """First line of `forward`."""
        return f"    def forward({', '.join(['self', *self.arguments])}):\n"

    def source(self) -> str:
        """The whole file."""
        result = self.result.replace("{}", self.call.replace("{}", ", ".join(self.passed)))
        return "".join(
            [
                *(f"{line}\n" for line in self.imports),
                '\nsource = """\n',
                f"{self.returned} kernel({', '.join(self.parameters)}) {{\n",
                *(f"    {line}\n" for line in self.body),
                '}\n"""\n',
                'ext = load_inline(name="ext", cpp_sources=source, functions=["kernel"])\n',
                f"\n\nclass {self.class_name}(nn.Module):\n",
                self.constructor + ("\n" if self.constructor else ""),
                self.head,
                f"        return {result}\n",
            ]
        )


def cpp_program(reference: Reference, frame: Frame, style: Style) -> CppProgram:
    """The correct kernel for a frame and a style."""
    linear = "self.linear" in reference.constructor
    vectors = tuple(name for name in ("scale", "bias") if f"self.{name} = nn" in reference.constructor)
    tensors = (*reference.arguments, *vectors)
    passed = (*reference.arguments, *(f"self.{name}" for name in vectors))
    if linear:
        tensors, passed = ("x", "z", "bias"), ("x", "self.linear.weight", "self.linear.bias")
    if frame == "lookup":
        tensors, passed = ("x", "z"), ("x", "self.table")
    factor = "self.factor" in reference.constructor
    make = {"flat": _flat, "two_flat": _flat, "product": _product, "lookup": _lookup}.get(frame, _rows)
    setup, loops = make(reference, frame, style)
    outputs = ("y", "z") if frame == "two_flat" else ("y",)
    kinds = {"x": "int64_t"} if frame == "lookup" else {}
    kinds["y"] = "int64_t" if _is_argmax(reference) else "float"
    if _is_mask(reference):
        kinds["y"] = "bool"
    pointers = [f"auto {name}p = {name}_.data_ptr<{kinds.get(name, 'float')}>();" for name in (*tensors, *outputs)]
    return CppProgram(
        parameters=(*(f"torch::Tensor {name}_" for name in tensors), *(("double factor_",) if factor else ())),
        returned="std::vector<torch::Tensor>" if frame == "two_flat" else "torch::Tensor",
        body=(
            *setup,
            *pointers,
            *(("float factor = factor_;",) if factor else ()),
            *loops,
            "return {y_, z_};" if frame == "two_flat" else "return y_;",
        ),
        constructor=reference.constructor,
        arguments=reference.arguments,
        passed=(*passed, *(("self.factor",) if factor else ())),
        result="tuple({})" if frame == "two_flat" else "{}",
    )


def _is_mask(reference: Reference) -> bool:
    return reference.steps[-1:] == ("x = x > z",)


def _is_argmax(reference: Reference) -> bool:
    return reference.steps[-1:] == ("x = x.argmax(dim=1)",)


_Lines = tuple[list[str], list[str]]
"""Two lists of lines: those that read sizes and allocate outputs, and the loops."""


def _element(steps: tuple[str, ...], kind: str, load: str, place: str, column: str, store: str) -> list[str]:
    """Lines that load the operands, apply the steps and store; `place` indexes tensors, `column` indexes vectors."""
    statements = [ELEMENTS[step] for step in steps]
    text = " ".join(statements)
    needed = [
        (name, where) for name, where in (("z", place), ("scale", column), ("bias", column)) if f" {name};" in text
    ]
    loads = [f"{kind} {name} = {name}p[{where}];" for name, where in needed]
    return [f"{kind} x = {load};", *loads, *statements, f"{store} = x;"]


def _block(head: str, lines: list[str]) -> list[str]:
    return [f"{head} {{".lstrip(), *(f"    {line}" for line in lines), "}"]


def _flat(reference: Reference, frame: Frame, style: Style) -> _Lines:
    setup = ["int64_t n = x_.numel();"]
    kind = "double" if style == "middling" else "float"
    if frame == "two_flat":
        setup += ["auto y_ = torch::empty_like(x_);", "auto z_ = torch::empty_like(x_);"]
        body = [f"{kind} x = xp[i];", "yp[i] = x > 0 ? x : 0;", "zp[i] = x * x;"]
    elif _is_mask(reference):
        setup.append("auto y_ = torch::empty_like(x_, torch::kBool);")
        body = ["float x = xp[i];", "float z = zp[i];", "yp[i] = x > z;"]
    else:
        setup.append("auto y_ = torch::empty_like(x_);")
        body = _element(reference.steps, kind, "xp[i]", "i", "i", "yp[i]")
    outer, inner = (
        f"for (int64_t p = 0; p < n; p += {_PART})",
        f"for (int64_t i = p; i < std::min(p + {_PART}, n); i++)",
    )
    if style == "slow":
        outer, inner = f"for (int64_t p = 0; p < {_STRIDE}; p++)", f"for (int64_t i = p; i < n; i += {_STRIDE})"
    return setup, _block(outer, _block(inner, body))


def _rows(reference: Reference, frame: Frame, style: Style) -> _Lines:
    """Loops of `rows` and `row_value`, and of `total`, which is treated as one row."""
    setup = ["int64_t m = x_.size(0), n = x_.size(1);"]
    row = "r * n + j"
    if frame == "total":
        setup = ["int64_t m = 1, n = x_.numel();", "auto y_ = torch::empty({}, x_.options());"]
    elif frame == "row_value":
        integer = ".dtype(torch::kLong)" if _is_argmax(reference) else ""
        setup.append(f"auto y_ = torch::empty({{m}}, x_.options(){integer});")
    else:
        setup.append("auto y_ = torch::empty_like(x_);")
    setup.append("std::vector<float> v(n);")
    body, ended = _row_steps(reference.steps, style)
    if frame == "rows":
        body.append(f"{_LOOP} yp[{row}] = v[j];")
    elif not ended:
        body.append("yp[r] = s;")
    loop = _block("for (int64_t r = 0; r < m; r++)", [f"{_LOOP} v[j] = xp[{row}];", *body])
    needs_number = any("s = " in line for line in body)
    number = ["double s;" if style == "slow" else "float s;"] if needs_number else []
    return setup, [*number, *loop]


def _row_steps(steps: tuple[str, ...], style: Style) -> tuple[list[str], bool]:
    """The lines, and whether the last of them stores the result of the row."""
    kind = "double" if style == "slow" else "float"
    lines: list[str] = []
    waiting: list[str] = []
    reduced = False

    def flush() -> None:
        parts = [tuple(waiting)] if waiting else []
        if style == "slow":
            parts = [(step,) for step in waiting]
        for part in parts:
            lines.extend(_block(_LOOP, _element(part, kind, "v[j]", "r * n + j", "j", "v[j]")))
        waiting.clear()

    for i, step in enumerate(steps):
        if step in ELEMENTS:
            if reduced:
                # A block of its own: the same indentation as the statements on elements.
                return [*lines, *_block("", _element(steps[i:], kind, "s", "r", "r", "yp[r]"))], True
            waiting.append(step)
            continue
        flush()
        if step == "x = x.argmax(dim=1)":
            lines += ["int64_t a = 0;", f"{_LOOP} a = v[j] > v[a] ? j : a;", "yp[r] = a;"]
            return lines, True
        lines += _reduction(REDUCTIONS[step], style)
        reduced = "keepdim" not in step and "cumsum" not in step
    flush()
    return lines, False


def _reduction(reduction: Reduction, style: Style) -> list[str]:
    operation, term = reduction.operation, reduction.term
    if not operation:
        return ["s = 0;", f"{_LOOP} {term}"]
    begin = {"+": "s = 0;", "max": "s = -1e30;", "min": "s = 1e30;"}[operation]
    sign = {"max": ">", "min": "<"}.get(operation)
    step = f"s = {term} {sign} s ? {term} : s;" if sign else f"s += {term};"
    hint = [f"#pragma omp simd reduction({operation} : s)"] if style == "fast" else []
    return [begin, *hint, f"{_LOOP} {step}", *(line.replace("LOOP", _LOOP) for line in reduction.then)]


def _product(reference: Reference, frame: Frame, style: Style) -> _Lines:
    linear = "self.linear" in reference.constructor
    transposed = linear or "z.T" in reference.steps[0]
    setup = [
        "int64_t m = x_.size(0), k = x_.size(1);",
        f"int64_t n = z_.size({0 if transposed else 1});",
        "auto y_ = torch::empty({m, n}, x_.options());",
        "std::vector<float> v(n);",
    ]
    inner = "for (int64_t t = 0; t < k; t++)"
    z = "zp[j * k + t]" if transposed else "zp[t * n + j]"
    if style == "fast" and not transposed:
        body = [f"{_LOOP} v[j] = 0;", f"{inner} {_LOOP} v[j] += xp[r * k + t] * {z};"]
    else:
        kind = "double" if style == "slow" else "float"
        hint = ["#pragma omp simd reduction(+ : s)"] if style == "fast" else []
        body = _block(_LOOP, [f"{kind} s = 0;", *hint, f"{inner} s += xp[r * k + t] * {z};", "v[j] = s;"])
    steps = (*(("x = x + self.bias",) if linear else ()), *reference.steps[1:])
    after = _row_steps(steps, style)[0]
    return setup, _block("for (int64_t r = 0; r < m; r++)", [*body, *after, f"{_LOOP} yp[r * n + j] = v[j];"])


def _lookup(reference: Reference, frame: Frame, style: Style) -> _Lines:
    setup = ["int64_t m = x_.numel(), n = z_.size(1);", "auto y_ = torch::empty({m, n}, z_.options());"]
    rows, copy = "for (int64_t r = 0; r < m; r++)", "yp[r * n + j] = zp[xp[r] * n + j];"
    loops = {"fast": [f"{rows} {_LOOP} {copy}"], "slow": [f"{_LOOP} {rows} {copy}"]}
    loops["middling"] = _block(f"{rows} {_LOOP}", ["double x = zp[xp[r] * n + j];", "yp[r * n + j] = x;"])
    return setup, loops[style]
