"""Rules on who computes: whether `ModelNew.forward` launches kernels, and whether a library does their work."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelrl_core.api.checkers import SourceFacts
from kernelrl_core.api.sources import children, names_in, targets_of
from kernelrl_plugin_checkers.reading import Breach, Reading
from kernelrl_plugin_checkers.torch_names import (
    ALLOCATORS,
    ARRANGING_METHODS,
    COMPUTING_METHODS,
    OPERATORS,
    REDUCTIONS,
    WRAPPERS,
    is_computing_module,
    is_library_compute,
)

__all__ = ["ComputeRules"]

_EXTENSION_MAKER = "load_inline"


class ComputeRules:
    """Looks at code that `forward` can come to."""

    def __init__(self, reading: Reading, facts: SourceFacts) -> None:
        self._reading = reading
        self._facts = facts
        self._bodies = reading.index.bodies
        self._held: dict[str, str] = {}
        self._extensions: dict[str, bool] = {}

    def breaches(self) -> Iterator[Breach]:
        """All breaches of these rules."""
        yield from self._own_kernels()
        for part in self._reading.index.reached(stop=self._python_kernels()):
            # What is assigned elsewhere, a parameter's first value say, is not computed by `forward`.
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                own = self._reading.own_nodes(part)
                yield from self._part(part, own)
                yield from self._handed_on(own)
            elif isinstance(part, ast.expr):
                yield from self._handed_on(list(self._reading.walk(part)))

    def _python_kernels(self) -> set[str]:
        """Kernels that are functions of this file. One in a string may share its name with the function around it."""
        return {
            kernel.name
            for kernel in self._facts.kernels
            for body in self._bodies.get(kernel.name, ())
            if isinstance(body, ast.FunctionDef) and body.lineno == kernel.line
        }

    def _own_kernels(self) -> Iterator[Breach]:
        if not any(kernel.reached for kernel in self._facts.kernels):
            if self._facts.unread:
                yield "unreadable_source", None, f"whether a kernel is launched is not known: {self._facts.unread}"
                return
            yield "no_kernel", None, "no launch of a kernel can be reached from ModelNew.forward"
            return
        for kernel in self._facts.kernels:
            if not kernel.launched:
                yield "unused_kernel", kernel.line, f"kernel {kernel.name} is launched nowhere"

    def _handed_on(self, own: Sequence[ast.AST]) -> Iterator[Breach]:
        """Functions of a library that a table or another function holds, for whoever calls them from there."""
        called = {id(node.func) for node in own if isinstance(node, ast.Call)}
        # To compare with one is not to call it.
        called |= {id(side) for node in own if isinstance(node, ast.Compare) for side in (node.left, *node.comparators)}
        for node in own:
            if not isinstance(node, ast.Attribute | ast.Name) or id(node) in called:
                continue
            last = node.attr if isinstance(node, ast.Attribute) else self._reading.modules.get(node.id, "")
            if last.rpartition(".")[2] not in OPERATORS:
                continue
            name = self._reading.dotted(node)
            if name and is_library_compute(name):
                yield "library_compute", node.lineno, f"{name}, handed on"

    def _part(
        self, part: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, own: Sequence[ast.AST]
    ) -> Iterator[Breach]:
        handlers = self._handlers(own)
        tensors, results = self._tensors(part, own)
        for node in own:
            note = self._computes(node, tensors)
            if not note or not isinstance(node, ast.expr | ast.stmt):
                continue
            if isinstance(node, ast.Call) and self._is_final_reduction(node, results):
                yield "final_reduction", node.lineno, note
                continue
            yield "library_compute", node.lineno, note
            if id(node) in handlers:
                yield "fallback", node.lineno, f"{note}, in an exception handler"

    def _handlers(self, own: Sequence[ast.AST]) -> set[int]:
        """Ids of the nodes in exception handlers. Each is come to once, however deeply handlers are nested."""
        found: set[int] = set()
        waiting: list[ast.AST] = [node for node in own if isinstance(node, ast.ExceptHandler)]
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                self._reading.spend()
                found.add(id(node))
                waiting += children(node)
        return found

    def _computes(self, node: ast.AST, tensors: set[str]) -> str:
        """What library compute a node is, or empty text."""
        if isinstance(node, ast.BinOp | ast.AugAssign):
            if isinstance(node.op, ast.MatMult):
                return "a matrix product"
            sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            if any(self._is_view(side, tensors) for side in sides):
                return "arithmetic on a tensor"
            return ""
        if not isinstance(node, ast.Call):
            return ""
        name = self._reading.dotted(node.func)
        if name and is_library_compute(name):
            return name
        if isinstance(node.func, ast.Call):
            inner = self._reading.dotted(node.func.func)
            if inner and is_computing_module(inner):
                return f"a call of {inner}"
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and last in COMPUTING_METHODS and not name and not self._is_extension(owner, tensors):
            return f"the method {last} of a tensor"
        held = last or (node.func.id if isinstance(node.func, ast.Name) else "")
        if held not in self._held:
            self._held[held] = self._held_compute(held)
        return self._held[held]

    def _held_compute(self, held: str) -> str:
        """What library compute stands behind a name that is called, or empty text."""
        for value in self._bodies.get(held, ()):
            if isinstance(value, ast.Call):
                made = self._reading.dotted(value.func)
                if made and is_computing_module(made):
                    return f"a call of the layer {held}, a {made}"
            elif isinstance(value, ast.Attribute | ast.Name):
                alias = self._reading.dotted(value)
                if alias and is_library_compute(alias):
                    return f"{alias}, under the name {held}"
        return ""

    def _is_extension(self, owner: ast.expr, tensors: set[str]) -> bool:
        """Whether an object may be an extension of the candidate's own, whose functions have names of its choice."""
        if isinstance(owner, ast.Call):
            return self._makes_extension(owner)
        if isinstance(owner, ast.Name) and owner.id in tensors:
            return False
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        if name not in self._extensions:
            self._extensions[name] = False
            self._extensions[name] = any(
                isinstance(value, ast.Call | ast.Name | ast.Attribute) and self._is_extension(value, tensors)
                for value in self._bodies.get(name, ())
            )
        return self._extensions[name]

    def _makes_extension(self, call: ast.Call) -> bool:
        """A call of `load_inline`, or of a function in which it is called."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return name == _EXTENSION_MAKER or any(
            isinstance(body, ast.FunctionDef) and _EXTENSION_MAKER in names_in(body)
            for body in self._bodies.get(name, ())
        )

    def _is_final_reduction(self, node: ast.Call, results: set[str]) -> bool:
        """A sum or mean of what kernels have made."""
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in REDUCTIONS:
            return False
        over: ast.expr | None = function.value
        if self._reading.dotted(function) in ("torch.sum", "torch.mean"):
            over = node.args[0] if node.args else None
        while (
            isinstance(over, ast.Call)
            and isinstance(over.func, ast.Attribute)
            and over.func.attr in ARRANGING_METHODS
            and not self._is_extension(over.func.value, set())
        ):
            over = over.func.value
        if isinstance(over, ast.Name):
            return over.id in results
        return over is not None and self._is_result(over, set())

    def _tensors(self, part: ast.AST, own: Sequence[ast.AST]) -> tuple[set[str], set[str]]:
        """Names that are tensors for certain, and names of what kernels write or extensions return."""
        tensors: set[str] = set()
        results: set[str] = set()
        if isinstance(part, ast.FunctionDef) and part in self._reading.index.entries:
            tensors |= {argument.arg for argument in part.args.args[1:] if argument.annotation is None}
        assignments = [node for node in own if isinstance(node, ast.Assign) and len(node.targets) == 1]
        for node in sorted(assignments, key=lambda node: node.lineno):
            value, names = node.value, set(targets_of(node.targets[0]))
            if isinstance(node.targets[0], ast.Tuple | ast.List):
                tensors -= names
                results -= names
            elif isinstance(value, ast.Call) and self._reading.dotted(value.func) in ALLOCATORS:
                results |= names
                tensors |= names
            elif self._is_view(value, tensors | results):
                tensors |= names
                results = results | names if self._is_view(value, results) else results - names
            else:
                tensors -= names
                if self._is_result(value, tensors):
                    results |= names
                else:
                    results -= names
        return tensors, results

    def _is_result(self, value: ast.expr, tensors: set[str]) -> bool:
        """A call of a function of the candidate's own extension."""
        return (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and self._is_extension(value.func.value, tensors)
        )

    def _is_view(self, value: ast.expr, tensors: set[str]) -> bool:
        while isinstance(value, ast.Call):
            if value.args and self._reading.dotted(value.func) in WRAPPERS:
                value = value.args[0]
            elif isinstance(value.func, ast.Attribute) and value.func.attr in ARRANGING_METHODS:
                value = value.func.value
            else:
                return False
        return isinstance(value, ast.Name) and value.id in tensors
