"""Kernels of Inductor as plain Triton kernels."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping

import attrs

from kernelrl_plugin_raicl.rewriting.pair import Unrewritable, parse_part

__all__ = ["HELPERS", "Kernel", "embedded_kernel", "plain_name", "read_kernel", "without_dead_stores"]

_GENERATED = re.compile(r"triton_(?:poi|per|red|for|tem|unk)_(?:fused_)?_*(\w*?)_?(\d+)")
_WRITES = frozenset({"store", "debug_barrier", "device_assert"})
"""Functions of `tl` that are called for their effect; `atomic_*` are others."""

_HELPER_SOURCE = """
@triton.jit
def floor_divide(a, b):
    quotient = a // b
    inexact = (a % b != 0) & ((a < 0) != (b < 0))
    return tl.where(inexact, quotient - 1, quotient)

@triton.jit
def floor_remainder(a, b):
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)

@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight

@triton.jit
def welford_update(value, mean, m2, weight):
    delta = value - mean
    weight = weight + 1
    mean = mean + delta / weight
    return mean, m2 + delta * (value - mean), weight
"""
HELPERS = {item.name: item for item in ast.parse(_HELPER_SOURCE).body if isinstance(item, ast.FunctionDef)}
"""Device functions that stand for helpers of Inductor, by name."""

_NAN = "tl.{0}({1}, {2}, propagate_nan=tl.PropagateNan.ALL)"
_WELFORD = "tl.reduce(({0}, {1}, {2}), {3}, welford_combine)"
_EXPRESSIONS: dict[str, str] = {
    "triton_helpers.maximum": _NAN.format("maximum", "{0}", "{1}"),
    "triton_helpers.minimum": _NAN.format("minimum", "{0}", "{1}"),
    "triton_helpers.max2": "tl.max({0}, {1})",
    "triton_helpers.min2": "tl.min({0}, {1})",
    "triton_helpers.any": "tl.max(({0}).to(tl.int32), {1}) != 0",
    "triton_helpers.promote_to_tensor": "{0}",
    "triton_helpers.div_floor_integer": "floor_divide({0}, {1})",
    "triton_helpers.remainder_integer": "floor_remainder({0}, {1})",
    "triton_helpers.welford": _WELFORD,
    "triton_helpers.welford_reduce": "welford_update({0}, {1}, {2}, {3})",
    "libdevice.isnan": "{0} != {0}",
    "libdevice.isinf": "tl.abs({0}) == float('inf')",
    "libdevice.sqrt": "tl.sqrt_rn({0})",
}
"""Function of Inductor -> the same in Triton, with its arguments."""
_IN_LANGUAGE = ["abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "fma", "log", "log2", "rsqrt", "sin", "sqrt"]
"""Functions of `libdevice` and `tl_math` that `tl` has under the same name."""
_HEURISTICS = frozenset({"pointwise", "reduction", "persistent_reduction"})


@attrs.define(eq=False)
class Kernel:
    """A kernel and what its launches must know."""

    function: ast.FunctionDef
    """Definition with plain Triton only."""
    helpers: set[str]
    """Names in `HELPERS` that it calls."""
    uses_libdevice: bool
    blocks: Mapping[str, int]
    """Block sizes for launches that leave them to a heuristic of Inductor."""
    written: set[str] = attrs.field(init=False)
    """Parameters that are stored to."""
    read: set[str] = attrs.field(init=False)
    """Parameters that are loaded from or updated atomically."""

    def __attrs_post_init__(self) -> None:
        self.find_effects()

    @property
    def parameters(self) -> list[str]:
        return [item.arg for item in self.function.args.args]

    def find_effects(self) -> None:
        """Set `written` and `read`; to be called when the function has changed."""
        self.written, self.read = set(), set()
        for node in ast.walk(self.function):
            if _is_write(node):
                self.written |= _pointers(node)
            name = _called(node)
            if name == "tl.load" or name.startswith("tl.atomic"):
                self.read |= _pointers(node)


def plain_name(name: str) -> str:
    """The name of a kernel without Inductor's prefix: `triton_poi_fused_add_relu_0` -> `add_relu_kernel_0`."""
    match = _GENERATED.fullmatch(name)
    return f"{match[1] or 'fused'}_kernel_{match[2]}" if match else name


def read_kernel(function: ast.FunctionDef, blocks: Mapping[str, int] | None = None) -> Kernel:
    """A kernel without calls into Inductor.

    Raises:
        Unrewritable: it uses a helper without a counterpart.
    """
    function.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    translator = _Translator()
    translator.visit(function)
    function.body = [item for item in function.body if not _is_idle(item)] or [ast.Pass()]
    for loop in [node for node in ast.walk(function) if isinstance(node, ast.For)]:
        loop.body = [item for item in loop.body if not _is_idle(item)] or [ast.Pass()]
    _remove_unused(function)
    return Kernel(ast.fix_missing_locations(function), translator.helpers, translator.uses_libdevice, blocks or {})


def embedded_kernel(name: str, call: ast.Call) -> Kernel:
    """The kernel in the text of `async_compile.triton(name, text)`.

    Raises:
        Unrewritable: the text is not a kernel with known heuristics.
    """
    text = call.args[1] if len(call.args) > 1 else None
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        raise Unrewritable("kernel is not a text", name)
    for function in parse_part(text.value, "a kernel").body:
        if isinstance(function, ast.FunctionDef):
            break
    else:
        raise Unrewritable("kernel is not a function", name)
    function.name = name
    blocks: dict[str, int] = {}
    for decorator in function.decorator_list:
        kind = ast.unparse(decorator.func).rpartition(".")[2] if isinstance(decorator, ast.Call) else ""
        if kind in _HEURISTICS:
            assert isinstance(decorator, ast.Call)
            sizes = {item.arg: item.value for item in decorator.keywords}.get("size_hints")
            blocks = _blocks(kind, sizes, [item.arg for item in function.args.args])
        elif kind:
            raise Unrewritable("heuristic of Inductor without a counterpart", kind)
    return read_kernel(function, blocks)


def without_dead_stores(kernel: Kernel, dead: Iterable[str]) -> None:
    """Remove stores to parameters that nothing reads afterwards, and the parameters."""
    dead = set(dead)
    function = kernel.function

    class Remover(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
            return None if _is_write(node.value) and _pointers(node.value) <= dead else node

    Remover().visit(function)
    function.args.args = [item for item in function.args.args if item.arg not in dead]
    _remove_unused(function)
    kernel.find_effects()


class _Translator(ast.NodeTransformer):
    """Replaces functions of Inductor by Triton's."""

    def __init__(self) -> None:
        self.helpers: set[str] = set()
        self.uses_libdevice = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _called(node)
        module, _, function = name.rpartition(".")
        module = module.rpartition(".")[2]
        name = f"{module}.{function}"
        if module in ("libdevice", "tl_math", "math") and function in _IN_LANGUAGE and name not in _EXPRESSIONS:
            node.func = ast.parse(f"tl.{function}", mode="eval").body
            return node
        if module in ("libdevice", "tl_math"):
            if name not in _EXPRESSIONS:
                self.uses_libdevice = True
                node.func = ast.parse(f"libdevice.{function}", mode="eval").body
                return node
        elif module != "triton_helpers":
            return node
        pattern = _EXPRESSIONS.get(name)
        if pattern is None:
            raise Unrewritable("helper of Inductor without a counterpart", name)
        try:
            found = ast.parse(pattern.format(*map(ast.unparse, node.args)), mode="eval").body
        except IndexError:
            raise Unrewritable("helper of Inductor without a counterpart", name) from None
        self.helpers |= {item.id for item in ast.walk(found) if isinstance(item, ast.Name)} & set(HELPERS)
        return found


def _blocks(kind: str, sizes: ast.expr | None, parameters: list[str]) -> dict[str, int]:
    """Block sizes that a launch passes, from the sizes that Inductor noted."""
    try:
        hints = ast.literal_eval(sizes) if sizes is not None else None
    except ValueError:
        hints = None
    if isinstance(hints, dict):
        hints = [hints[name] for name in ("y", "x", "r", "r0_") if name in hints]
    if not isinstance(hints, list | tuple) or not all(isinstance(item, int) for item in hints):
        raise Unrewritable("kernel without size hints")
    wanted = [name for name in ("YBLOCK", "XBLOCK", "RBLOCK", "R0_BLOCK") if name in parameters]
    inner = 1 if kind == "persistent_reduction" else 0
    limits = {"pointwise": {1: 256, 2: 32}.get(len(wanted), 0), "reduction": 64, "persistent_reduction": 8}
    if len(wanted) != len(hints) - inner or not limits[kind]:
        raise Unrewritable("kernel with more dimensions than a launch has")
    return {name: min(max(1, hint), limits[kind]) for name, hint in zip(wanted, hints, strict=False)}


def _called(node: ast.AST) -> str:
    """The dotted name of a called function; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    parts: list[str] = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(parts)]) if isinstance(function, ast.Name) else ""


def _is_write(node: ast.AST) -> bool:
    name = _called(node)
    return name == "tl.store" or name.startswith("tl.atomic")


def _pointers(node: ast.AST) -> set[str]:
    """Parameters in the address of a load or a store."""
    assert isinstance(node, ast.Call)
    return {item.id for item in ast.walk(node.args[0]) if isinstance(item, ast.Name) and "ptr" in item.id}


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement computes a value that is dropped."""
    if not isinstance(statement, ast.Expr):
        return False
    name = _called(statement.value)
    return not (name.startswith("tl.atomic") or name.removeprefix("tl.") in _WRITES)


def _remove_unused(function: ast.FunctionDef) -> None:
    """Remove assignments to names that nothing reads."""
    while True:
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}

        def is_needed(item: ast.stmt, read: set[str] = read) -> bool:
            return (
                not isinstance(item, ast.Assign)
                or not isinstance(item.targets[0], ast.Name)
                or (item.targets[0].id in read)
            )

        removed = _filter(function, is_needed)
        if not removed:
            return


def _filter(node: ast.AST, keep: Callable[[ast.stmt], bool]) -> int:
    """Remove statements below a node; returns their number."""
    removed = 0
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list):
            kept = [item for item in body if keep(item)]
            removed += len(body) - len(kept)
            inner.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return removed
