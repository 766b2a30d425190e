"""The parts that compositions consist of: lines of the reference, and the lines of a kernel that do the same.

Both update one running value `x`. A kernel has the value in float32, as one row or as a tile of whole rows, and its
reductions are written by `Rows`, which masks the columns beyond the row. All parts are continuous functions, so that a
kernel which rounds elsewhere than PyTorch is still right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import attrs

from kernelrl_plugin_starter.composition.values import Demand, Effect, Mark, Sign, Size, Value

__all__ = ["PARTS", "Kind", "Operand", "Part", "Rows"]

Kind = Literal["element", "pair", "row", "scan", "reduction", "product"]
Operand = Literal["", "z", "w", "s", "a"]
"""Further input of a part: `z` of the shape of `x`, `w` for the columns, `s` for the rows, or the matrix `a`."""

_LOWEST = 'float("-inf")'
_HIGHEST = 'float("inf")'


@attrs.frozen
class Rows:
    """The text of reductions over the columns of the value in a kernel."""

    axis: str
    """Arguments of `tl.sum` and others."""
    columns: str
    """Expression of the number of columns."""
    masked: bool
    """Whether the value has columns beyond the row."""

    def sum(self, text: str) -> str:
        """The sum of an expression."""
        return f"tl.sum({self._filled(text, '0.0')}, {self.axis})"

    def mean(self, text: str) -> str:
        """The mean of an expression."""
        return f"{self.sum(text)} / {self.columns}"

    def max(self, text: str) -> str:
        """The maximum of an expression."""
        return f"tl.max({self._filled(text, _LOWEST)}, {self.axis})"

    def min(self, text: str) -> str:
        """The minimum of an expression."""
        return f"tl.min({self._filled(text, _HIGHEST)}, {self.axis})"

    def _filled(self, text: str, fill: str) -> str:
        return f"tl.where(mask, {text}, {fill})" if self.masked else text


Lines = tuple[str, ...]


@attrs.frozen
class Part:
    """One part."""

    name: str
    kind: Kind
    reference: Lines
    """Lines of `forward`. `C` is replaced by a constant."""
    kernel: Callable[[Rows], Lines]
    """Lines of the kernel."""
    demand: Demand
    effect: Effect
    family: str
    """Parts of one family have the same operators; the guard against leaks cannot tell them apart."""
    operand: Operand = ""

    def accepts(self, value: Value) -> bool:
        """Whether the part may follow a value."""
        return self.demand.accepts(value)

    def after(self, value: Value) -> Value:
        """The value after the part."""
        return self.effect.of(value)


_ALL = "±+-"
_ANY: tuple[Size, ...] = ("unit", "mid", "wide", "big")
_TAME: tuple[Size, ...] = ("unit", "mid")
_CENTRED: tuple[Size, ...] = ("unit", "mid", "wide")
_VARIED: tuple[Size, ...] = ("mid", "wide", "big")
_WITH_NARROW: tuple[Size, ...] = ("narrow", "unit", "mid", "wide", "big")
_TO_UNIT: dict[Size, Size] = {"mid": "unit", "wide": "unit", "big": "unit"}
_TO_MID: dict[Size, Size] = {"unit": "mid", "wide": "mid", "big": "mid"}
_TO_NARROW: dict[Size, Size] = {"unit": "narrow", "mid": "narrow", "wide": "narrow", "big": "narrow"}
_GROWN: dict[Size, Size] = {"unit": "mid", "mid": "wide"}
_NOTHING: frozenset[Mark] = frozenset()
_SHIFT: frozenset[Mark] = frozenset(("shifted",))
_SCALE: frozenset[Mark] = frozenset(("scaled",))
_SETTLED: frozenset[Mark] = frozenset(("settled",))
_NORMED: frozenset[Mark] = frozenset(("normed",))
_BY_FUNCTION: frozenset[Mark] = frozenset(("shifted", "scaled", "settled"))
"""What an elementwise function clears."""


def _element(
    name: str,
    reference: str,
    kernel: str,
    signs: str = _ALL,
    sizes: tuple[Size, ...] = _CENTRED,
    sign: Sign | None = None,
    becomes: dict[Size, Size] | None = None,
    marks: frozenset[Mark] | None = None,
    keeps: str = "",
) -> Part:
    """An elementwise part. `marks`: it clears no marks and adds these; None: it clears those that a function clears."""
    clears = _BY_FUNCTION if marks is None else _NOTHING
    effect = Effect(sign, becomes or {}, clears, marks or _NOTHING, keeps)
    return Part(name, "element", (reference,), lambda rows: (kernel,), Demand(signs, sizes), effect, name)


def _squash(
    name: str, reference: str, kernel: str, sign: Sign | None = None, sizes: tuple[Size, ...] = ("mid",)
) -> Part:
    """An elementwise part with values of at most 1, which would be almost constant after another one."""
    return _element(name, reference, kernel, "±", sizes, sign, _TO_UNIT)


def _pair(
    name: str,
    operand: Operand,
    line: str,
    kernel: str,
    sizes: tuple[Size, ...],
    effect: Effect,
    family: str,
) -> Part:
    return Part(name, "pair", (line,), lambda rows: (kernel,), Demand(_ALL, sizes), effect, family, operand)


def _row(
    name: str,
    reference: str | Lines,
    kernel: Callable[[Rows], Lines],
    sizes: tuple[Size, ...],
    sign: Sign | None = None,
    becomes: dict[Size, Size] | None = None,
    *,
    blind: frozenset[Mark],
    signs: str = _ALL,
    kind: Kind = "row",
    family: str = "",
) -> Part:
    """A part over rows. `blind`: marks of changes without effect on it."""
    lines = (reference,) if isinstance(reference, str) else reference
    forbids = blind | _SETTLED | (_NORMED if kind == "reduction" else _NOTHING)
    effect = Effect(sign, becomes or {}, sets=_SETTLED | _NORMED)
    return Part(name, kind, lines, kernel, Demand(signs, sizes, forbids), effect, family or name)


def _scan(name: str, reference: str, kernel: Callable[[Rows], Lines]) -> Part:
    demand = Demand("±", _TAME)
    return Part(name, "scan", (reference,), kernel, demand, Effect("±", {"unit": "big", "mid": "big"}), name)


def _product(name: str, reference: str) -> Part:
    kernel = 'x = tl.dot(x.to(a.dtype), a, input_precision="tf32x3")'
    effect = Effect("±", {"unit": "mid"})
    return Part(name, "product", (reference,), lambda rows: (kernel,), Demand("±+", _TAME), effect, name, "a")


_ELEMENTS = (
    _element("scale", "x = x * C", "x = x * C", _ALL, _ANY, marks=_SCALE),
    _element("shift", "x = x + C", "x = x + C", _ALL, _ANY, "±", marks=_SHIFT, keeps="+"),
    _element("complement", "x = 1.0 - x", "x = 1.0 - x", _ALL, _ANY, "±", marks=_SHIFT),
    _element("square", "x = x * x", "x = x * x", _ALL, _TAME, "+", {"mid": "wide"}),
    _element("relu", "x = torch.relu(x)", "x = tl.maximum(x, 0.0)", "±", sign="+"),
    _element("leaky", "x = torch.where(x > 0.0, x, x * 0.1)", "x = tl.where(x > 0.0, x, x * 0.1)", "±"),
    _element("abs", "x = torch.abs(x)", "x = tl.abs(x)", "±", _ANY, "+"),
    _element("silu", "x = x * torch.sigmoid(x)", "x = x * tl.sigmoid(x)", "±+"),
    _element("gelu", "x = nn.functional.gelu(x)", "x = 0.5 * x * (1.0 + tl.erf(x * 0.70710678))", "±+"),
    _element("elu", "x = nn.functional.elu(x)", "x = tl.where(x > 0.0, x, tl.exp(x) - 1.0)", "±"),
    _element(
        "hardswish",
        "x = nn.functional.hardswish(x)",
        "x = x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0",
        "±",
    ),
    _element(
        "softplus",
        "x = nn.functional.softplus(x)",
        "x = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))",
        "±",
        ("mid",),
        "+",
    ),
    _element(
        "log",
        "x = torch.log(1.0 + torch.abs(x))",
        "x = tl.log(1.0 + tl.abs(x))",
        _ALL,
        _VARIED,
        "+",
        {"mid": "unit", "wide": "mid", "big": "mid"},
    ),
    _element(
        "root",
        "x = torch.sqrt(1.0 + torch.abs(x))",
        "x = tl.sqrt(1.0 + tl.abs(x))",
        _ALL,
        _VARIED,
        "+",
        {"mid": "unit", "wide": "mid", "big": "mid"},
    ),
    _element("exp", "x = torch.exp(x)", "x = tl.exp(x)", "-", ("mid",), "+", _TO_UNIT),
    _squash("sigmoid", "x = torch.sigmoid(x)", "x = tl.sigmoid(x)", "+"),
    _squash("tanh", "x = torch.tanh(x)", "x = 2.0 * tl.sigmoid(2.0 * x) - 1.0"),
    _squash("softsign", "x = x / (1.0 + torch.abs(x))", "x = x / (1.0 + tl.abs(x))", sizes=("mid", "wide")),
    _squash("sin", "x = torch.sin(x)", "x = tl.sin(x)"),
    _squash("cos", "x = torch.cos(x)", "x = tl.cos(x)"),
    _squash("laplace", "x = torch.exp(-torch.abs(x))", "x = tl.exp(-tl.abs(x))", "+"),
    _squash("gauss", "x = torch.exp(-x * x)", "x = tl.exp(-x * x)", "+"),
    _squash("cauchy", "x = 1.0 / (1.0 + x * x)", "x = 1.0 / (1.0 + x * x)", "+"),
    _squash("rsqrt", "x = torch.rsqrt(1.0 + x * x)", "x = tl.rsqrt(1.0 + x * x)", "+"),
    _squash(
        "clamp", "x = torch.clamp(x, -1.0, 1.0)", "x = tl.minimum(tl.maximum(x, -1.0), 1.0)", sizes=("mid", "wide")
    ),
)

_ADDED = Effect("±", {"unit": "mid"})
_TIMES = Effect("±", _GROWN)

_PAIRS = (
    _pair("add_z", "z", "x = x + z", "x = x + z", _ANY, _ADDED, "add"),
    _pair("sub_z", "z", "x = x - z", "x = x - z", _ANY, _ADDED, "sub"),
    _pair("mul_z", "z", "x = x * z", "x = x * z", _WITH_NARROW, _TIMES, "mul"),
    _pair(
        "max_z", "z", "x = torch.maximum(x, z)", "x = tl.maximum(x, z)", _ANY, attrs.evolve(_ADDED, keeps="+"), "max"
    ),
    _pair(
        "min_z", "z", "x = torch.minimum(x, z)", "x = tl.minimum(x, z)", _ANY, attrs.evolve(_ADDED, keeps="-"), "min"
    ),
    _pair("gate_z", "z", "x = x * torch.sigmoid(z)", "x = x * tl.sigmoid(z)", _WITH_NARROW, Effect(), "gate"),
    _pair("swish_z", "z", "x = x * z * torch.sigmoid(z)", "x = x * z * tl.sigmoid(z)", _WITH_NARROW, _TIMES, "swish"),
    _pair("add_w", "w", "x = x + w", "x = x + w", _ANY, attrs.evolve(_ADDED, clears=_SCALE), "add"),
    _pair(
        "mul_w",
        "w",
        "x = x * w",
        "x = x * w",
        _WITH_NARROW,
        attrs.evolve(_TIMES, clears=_SHIFT | _SETTLED | _NORMED),
        "mul",
    ),
    _pair("add_s", "s", "x = x + s", "x = x + s", _ANY, attrs.evolve(_ADDED, clears=_NOTHING, sets=_SHIFT), "add"),
    _pair(
        "mul_s", "s", "x = x * s", "x = x * s", _WITH_NARROW, attrs.evolve(_TIMES, clears=_NOTHING, sets=_SCALE), "mul"
    ),
)


def _softmax(sign: str) -> Callable[[Rows], Lines]:
    return lambda rows: (
        *((f"x = {sign}x",) if sign else ()),
        f"x = tl.exp(x - {rows.max('x')})",
        f"x = x / {rows.sum('x')}",
    )


def _log_softmax(rows: Rows) -> Lines:
    return (f"x = x - {rows.max('x')}", f"x = x - tl.log({rows.sum('tl.exp(x)')})")


def _quiet_softmax(rows: Rows) -> Lines:
    return (f"x = tl.exp(x - {rows.max('x')})", f"x = x / (1.0 + {rows.sum('x')})")


def _layer_norm(rows: Rows) -> Lines:
    return (f"x = x - {rows.mean('x')}", f"x = x * tl.rsqrt({rows.mean('x * x')} + 1e-5)")


def _min_max(rows: Rows) -> Lines:
    return (f"x = x - {rows.min('x')}", f"x = x / ({rows.max('x')} + 1e-6)")


_ROWS = (
    _row("softmax", "x = torch.softmax(x, dim=1)", _softmax(""), ("mid",), "+", _TO_NARROW, blind=_SHIFT),
    _row("softmin", "x = torch.softmax(-x, dim=1)", _softmax("-"), ("mid",), "+", _TO_NARROW, blind=_SHIFT),
    _row(
        "quiet_softmax",
        ("x = torch.exp(x - x.amax(dim=1, keepdim=True))", "x = x / (1.0 + x.sum(dim=1, keepdim=True))"),
        _quiet_softmax,
        ("mid",),
        "+",
        _TO_NARROW,
        blind=_SHIFT,
        family="softmax",
    ),
    _row(
        "log_softmax",
        "x = torch.log_softmax(x, dim=1)",
        _log_softmax,
        ("mid", "wide"),
        "-",
        _TO_NARROW,
        blind=_SHIFT,
    ),
    _row(
        "layer_norm",
        "x = nn.functional.layer_norm(x, x.shape[1:])",
        _layer_norm,
        _ANY,
        "±",
        _TO_MID,
        blind=_SHIFT | _SCALE,
    ),
    _row(
        "rms_norm",
        "x = x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-6)",
        lambda rows: (f"x = x * tl.rsqrt({rows.mean('x * x')} + 1e-6)",),
        _ANY,
        None,
        _TO_MID,
        blind=_SCALE,
    ),
    _row(
        "center",
        "x = x - x.mean(dim=1, keepdim=True)",
        lambda rows: (f"x = x - {rows.mean('x')}",),
        _ANY,
        "±",
        blind=_SHIFT,
    ),
    _row(
        "sub_max",
        "x = x - x.amax(dim=1, keepdim=True)",
        lambda rows: (f"x = x - {rows.max('x')}",),
        _VARIED,
        "-",
        blind=_SHIFT,
    ),
    _row(
        "sub_min",
        "x = x - x.amin(dim=1, keepdim=True)",
        lambda rows: (f"x = x - {rows.min('x')}",),
        _VARIED,
        "+",
        blind=_SHIFT,
    ),
    _row(
        "l1_norm",
        "x = x / (torch.abs(x).sum(dim=1, keepdim=True) + 1e-6)",
        lambda rows: (f"x = x / ({rows.sum('tl.abs(x)')} + 1e-6)",),
        _ANY,
        None,
        _TO_NARROW,
        blind=_SCALE,
    ),
    _row(
        "l2_norm",
        "x = nn.functional.normalize(x, dim=1)",
        lambda rows: (f"x = x / tl.maximum(tl.sqrt({rows.sum('x * x')}), 1e-12)",),
        _ANY,
        None,
        _TO_NARROW,
        blind=_SCALE,
    ),
    _row(
        "max_norm",
        "x = x / (torch.abs(x).amax(dim=1, keepdim=True) + 1e-6)",
        lambda rows: (f"x = x / ({rows.max('tl.abs(x)')} + 1e-6)",),
        _VARIED,
        None,
        _TO_UNIT,
        blind=_SCALE,
    ),
    _row(
        "min_max",
        ("x = x - x.amin(dim=1, keepdim=True)", "x = x / (x.amax(dim=1, keepdim=True) + 1e-6)"),
        _min_max,
        _VARIED,
        "+",
        _TO_UNIT,
        blind=_SHIFT | _SCALE,
    ),
)

_SCANS = (
    _scan("cumsum", "x = torch.cumsum(x, dim=1)", lambda rows: ("x = tl.cumsum(x, axis=0)",)),
    _scan("prefix_sum", "x = torch.cumsum(x, dim=1) - x", lambda rows: ("x = tl.cumsum(x, axis=0) - x",)),
    _scan(
        "suffix_sum",
        "x = x.sum(dim=1, keepdim=True) - torch.cumsum(x, dim=1)",
        lambda rows: (f"x = {rows.sum('x')} - tl.cumsum(x, axis=0)",),
    ),
)


def _reduction(
    name: str,
    reference: str,
    kernel: Callable[[Rows], Lines],
    sizes: tuple[Size, ...],
    signs: str = _ALL,
    blind: frozenset[Mark] = _NOTHING,
) -> Part:
    return _row(name, reference, kernel, sizes, blind=blind, signs=signs, kind="reduction")


def _log_sum_exp(rows: Rows) -> Lines:
    return (f"t = {rows.max('x')}", f"x = t + tl.log({rows.sum('tl.exp(x - t)')})")


_REDUCTIONS = (
    _reduction("sum", "x = x.sum(dim=1)", lambda rows: (f"x = {rows.sum('x')}",), _WITH_NARROW),
    _reduction("mean", "x = x.mean(dim=1)", lambda rows: (f"x = {rows.mean('x')}",), _ANY),
    _reduction(
        "amax", "x = x.amax(dim=1)", lambda rows: (f"x = {rows.max('x')}",), ("narrow", "mid", "wide", "big"), "±+"
    ),
    _reduction("amin", "x = x.amin(dim=1)", lambda rows: (f"x = {rows.min('x')}",), _VARIED, "±-"),
    _reduction(
        "norm", "x = torch.sqrt((x * x).sum(dim=1))", lambda rows: (f"x = tl.sqrt({rows.sum('x * x')})",), _WITH_NARROW
    ),
    _reduction("log_sum_exp", "x = torch.logsumexp(x, dim=1)", _log_sum_exp, _TAME),
    _reduction(
        "range",
        "x = x.amax(dim=1) - x.amin(dim=1)",
        lambda rows: (f"x = {rows.max('x')} - {rows.min('x')}",),
        _VARIED,
        "±",
        _SHIFT,
    ),
)

_PRODUCTS = (_product("matmul", "x = x @ a"), _product("matmul_t", "x = x @ a.T"))


def _named(parts: Iterable[Part]) -> dict[str, Part]:
    return {part.name: part for part in parts}


PARTS = _named((*_ELEMENTS, *_PAIRS, *_ROWS, *_SCANS, *_REDUCTIONS, *_PRODUCTS))
"""All parts by name."""
