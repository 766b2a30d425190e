"""The checker `source_rules`: evidence from the syntax tree, with line and excerpt.

It looks at code that `ModelNew.forward` can come to, and tells library compute from what only allocates or arranges. It
is on the side of the candidate where it cannot know: attributes of unknown objects, arithmetic on numbers and shapes,
layers that only hold parameters, and code that nothing calls, are let pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import attrs

from kernelrl_core.reachability import SourceIndex, names_in, parse_source, targets_of
from kernelrl_core.values import Candidate, Evaluation, Finding, Rule, Severity, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.rules import RULES
from kernelrl_plugin_checkers.torch_names import (
    COMPUTING_METHODS,
    REDUCTIONS,
    WRAPPERS,
    is_computing_module,
    is_library_compute,
)

__all__ = ["SourceRules"]

_MAX_CHARACTERS = 1_000_000
_MAX_PER_RULE = 5
_MAX_EXCERPT = 120
_ALLOCATORS = (
    "torch.empty",
    "torch.empty_like",
    "torch.zeros",
    "torch.zeros_like",
    "torch.full",
    "torch.empty_strided",
    "cupy.empty",
    "cupy.empty_like",
    "cupy.zeros",
    "cupy.zeros_like",
    "cupy.full",
    "cupy.ndarray",
)
_ARRANGING_METHODS = frozenset(
    {
        "contiguous",
        "view",
        "reshape",
        "transpose",
        "permute",
        "to",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "flatten",
        "clone",
        "detach",
        "float",
        "half",
    }
)
_EXTENSION_MAKER = "load_inline"
_PATCHABLE = ("torch", "time", "triton", "builtins", "sys", "gc", "inspect")
_INSPECTION = (
    "sys._getframe",
    "sys._current_frames",
    "inspect.stack",
    "inspect.currentframe",
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
    "ctypes.string_at",
    "ctypes.memmove",
)
_CONCURRENCY = ("threading", "_thread", "multiprocessing", "concurrent", "subprocess", "asyncio")
_CONCURRENCY_CALLS = (
    "os.fork",
    "os.system",
    "os.popen",
    "os.posix_spawn",
    "os.execv",
    "os.kill",
    "os.killpg",
    "os._exit",
)
_OUTSIDE = ("open", "io.open", "pathlib.Path", "os.environ", "os.getenv", "os.listdir", "os.open", "glob.glob")
_OUTSIDE_MODULES = ("socket", "urllib", "requests", "http", "shutil")


class SourceRules:
    """See `kernelrl_core.kinds.Checker`."""

    def __init__(self, config: SourceRulesConfig) -> None:
        self._rules: dict[str, Rule] = {
            id_: attrs.evolve(rule, severity=Severity(config.severity.get(id_, rule.severity)))
            for id_, rule in RULES.items()
            if id_ not in config.skip
        }
        self.rules: Sequence[Rule] = tuple(self._rules.values())

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings on the source; nothing more is known once it has run."""
        if evaluation is not None:
            return ()
        tree = parse_source(candidate.source) if len(candidate.source) <= _MAX_CHARACTERS else None
        if tree is None:
            return ()
        found: dict[str, list[Finding]] = {}
        lines = candidate.source.splitlines()
        for rule, node, note in _Look(tree, candidate).breaches():
            kept = found.setdefault(rule, [])
            line = getattr(node, "lineno", None)
            excerpt = lines[line - 1].strip()[:_MAX_EXCERPT] if line and line <= len(lines) else ""
            evidence = f"line {line}: {excerpt} ({note})" if line else note
            if rule in self._rules and len(kept) < _MAX_PER_RULE and all(other.line != line for other in kept):
                kept.append(Finding(rule, self._rules[rule].severity, evidence, line))
        return [finding for rule in self._rules for finding in found.get(rule, ())]


Breach = tuple[str, ast.AST | None, str]


class _Look:
    def __init__(self, tree: ast.Module, candidate: Candidate) -> None:
        self._tree = tree
        self._facts = candidate.facts
        self._index = SourceIndex(tree)
        self._reached = self._index.reached(stop=self._python_kernels())
        self._modules = _imports(tree)
        self._constants = {
            name: node.value
            for name, bodies in self._index.bodies.items()
            if len(bodies) == 1
            for node in bodies
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    def _python_kernels(self) -> set[str]:
        """Kernels that are functions of this file. One in a string may share its name with the function around it."""
        return {
            kernel.name
            for kernel in self._facts.kernels
            for body in self._index.bodies.get(kernel.name, ())
            if isinstance(body, ast.FunctionDef) and body.lineno == kernel.line
        }

    def breaches(self) -> Iterator[Breach]:
        yield from self._own_kernels()
        yield from self._compute()
        yield from self._anywhere()

    def _own_kernels(self) -> Iterator[Breach]:
        if not any(kernel.reached for kernel in self._facts.kernels):
            yield "no_kernel", None, "no launch of a kernel can be reached from ModelNew.forward"
        elif not all(kernel.launched for kernel in self._facts.kernels):
            for kernel in self._facts.kernels:
                if not kernel.launched:
                    yield "unused_kernel", None, f"kernel {kernel.name} of line {kernel.line} is launched nowhere"

    def _compute(self) -> Iterator[Breach]:
        for part in self._reached:
            if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                # What is assigned elsewhere, a parameter's first value say, is not computed by `forward`.
                continue
            handlers = {id(node) for h in _own_nodes(part) if isinstance(h, ast.ExceptHandler) for node in ast.walk(h)}
            tensors, buffers = self._tensors(part)
            for node in _own_nodes(part):
                note = self._computes(node, tensors)
                if not note:
                    continue
                if isinstance(node, ast.Call) and self._is_final_reduction(node, buffers):
                    yield "final_reduction", node, note
                    continue
                yield "library_compute", node, note
                if id(node) in handlers:
                    yield "fallback", node, f"{note}, in an exception handler"

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
        name = self._dotted(node.func)
        if name and is_library_compute(name):
            return name
        if isinstance(node.func, ast.Call):
            inner = self._dotted(node.func.func)
            if inner and is_computing_module(inner):
                return f"a call of {inner}"
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if last in COMPUTING_METHODS and not name and not self._is_extension(node.func.value, tensors):
            return f"the method {last} of a tensor"
        held = last or (node.func.id if isinstance(node.func, ast.Name) else "")
        for value in self._index.bodies.get(held, ()):
            if isinstance(value, ast.Call):
                made = self._dotted(value.func)
                if made and is_computing_module(made):
                    return f"a call of the layer {held}, a {made}"
            elif isinstance(value, ast.Attribute | ast.Name):
                alias = self._dotted(value)
                if alias and is_library_compute(alias):
                    return f"{alias}, under the name {held}"
        return ""

    def _is_extension(self, owner: ast.expr, tensors: set[str], depth: int = 8) -> bool:
        """Whether an object may be an extension of the candidate's own, whose functions have names of its choice."""
        if isinstance(owner, ast.Call):
            return self._makes_extension(owner)
        if isinstance(owner, ast.Name) and owner.id in tensors:
            return False
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return depth > 0 and any(
            isinstance(value, ast.Call | ast.Name | ast.Attribute) and self._is_extension(value, tensors, depth - 1)
            for value in self._index.bodies.get(name, ())
        )

    def _makes_extension(self, call: ast.Call) -> bool:
        """A call of `load_inline`, or of a function in which it is called."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        return name == _EXTENSION_MAKER or any(
            isinstance(body, ast.FunctionDef) and _EXTENSION_MAKER in names_in(body)
            for body in self._index.bodies.get(name, ())
        )

    def _is_final_reduction(self, node: ast.Call, buffers: set[str]) -> bool:
        function = node.func
        return (
            isinstance(function, ast.Attribute)
            and function.attr in REDUCTIONS
            and isinstance(function.value, ast.Name)
            and function.value.id in buffers
        )

    def _tensors(self, part: ast.AST) -> tuple[set[str], set[str]]:
        """Names that are tensors for certain, and those among them that the code has allocated itself."""
        if not isinstance(part, ast.FunctionDef) or part not in self._index.entries:
            return set(), set()
        tensors = {argument.arg for argument in part.args.args[1:] if argument.annotation is None}
        buffers: set[str] = set()
        for node in ast.walk(part):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            value, names = node.value, set(targets_of(node.targets[0]))
            if isinstance(node.targets[0], ast.Tuple | ast.List):
                tensors -= names
            elif isinstance(value, ast.Call) and self._dotted(value.func) in _ALLOCATORS:
                buffers |= names
                tensors |= names
            elif self._is_view(value, tensors):
                tensors |= names
            else:
                tensors -= names
        return tensors, buffers

    def _is_view(self, value: ast.expr, tensors: set[str]) -> bool:
        while isinstance(value, ast.Call):
            if value.args and self._dotted(value.func) in WRAPPERS:
                value = value.args[0]
            elif isinstance(value.func, ast.Attribute) and value.func.attr in _ARRANGING_METHODS:
                value = value.func.value
            else:
                return False
        return isinstance(value, ast.Name) and value.id in tensors

    def _anywhere(self) -> Iterator[Breach]:
        """Rules that hold for the whole file, kernels apart."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                for name in names:
                    if name.split(".")[0] in _CONCURRENCY:
                        yield "concurrency", node, f"import of {name}"
                    if name.split(".")[0] in _OUTSIDE_MODULES:
                        yield "outside_access", node, f"import of {name}"
            elif isinstance(node, ast.Call):
                yield from self._calls(node)
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from self._assigned(target, node)
            elif isinstance(node, ast.Subscript | ast.Compare):
                yield from self._keys(node)
            if isinstance(node, ast.Attribute) and self._dotted(node) == "os.environ":
                yield "outside_access", node, "os.environ"

    def _calls(self, node: ast.Call) -> Iterator[Breach]:
        name = self._dotted(node.func)
        if name in _INSPECTION:
            yield "inspection", node, name
        elif name in _CONCURRENCY_CALLS or name.split(".")[0] in _CONCURRENCY:
            yield "concurrency", node, name
        elif name in _OUTSIDE:
            yield "outside_access", node, name
        elif name in ("exec", "eval", "compile", "__import__", "importlib.import_module"):
            yield "dynamic_code", node, name
        elif name == "torch.set_float32_matmul_precision":
            yield "precision_switch", node, name
        elif name in ("getattr", "setattr") and len(node.args) >= 2:
            owner = self._dotted(node.args[0])
            if owner.split(".")[0] in _PATCHABLE:
                if name == "setattr":
                    yield "timing_patch", node, f"setattr on {owner}"
                elif self._folded(node.args[1]) is None:
                    yield "dynamic_code", node, f"a computed attribute of {owner}"

    def _assigned(self, target: ast.expr, node: ast.AST) -> Iterator[Breach]:
        if not isinstance(target, ast.Attribute):
            return
        name = self._dotted(target)
        if name.startswith("torch.backends."):
            yield "precision_switch", node, name
        elif name.split(".")[0] in _PATCHABLE and "." in name:
            yield "timing_patch", node, f"assignment to {name}"

    def _keys(self, node: ast.Subscript | ast.Compare) -> Iterator[Breach]:
        """Look-ups by what identifies an input."""
        key: ast.AST = node.slice if isinstance(node, ast.Subscript) else node.left
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.In | ast.NotIn):
            return
        keys = [key]
        if isinstance(key, ast.Name):
            keys += self._index.bodies.get(key.id, [])
        for candidate in keys:
            for below in ast.walk(candidate):
                if isinstance(below, ast.Call):
                    attribute = below.func.attr if isinstance(below.func, ast.Attribute) else ""
                    if attribute == "data_ptr" or self._dotted(below.func) == "id":
                        yield "result_cache", node, "a look-up by the identity of a tensor"
                        return

    def _dotted(self, node: ast.AST, depth: int = 8) -> str:
        """Dotted name that an expression stands for, imports and constant `getattr` resolved; empty when unknown."""
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
                folded = self._folded(node.args[1]) if len(node.args) >= 2 else None
                if folded is None:
                    return ""
                parts.append(folded)
                node = node.args[0]
            else:
                break
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self._modules:
            return ".".join([self._modules[node.id], *reversed(parts)])
        values = self._index.bodies.get(node.id, [])
        if not values:
            return "" if parts else node.id
        # `T = torch` and the like; a local object of another kind stays unknown.
        if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute) and depth:
            inner = self._dotted(values[0], depth - 1)
            return ".".join([inner, *reversed(parts)]) if "." in inner or inner in self._modules.values() else ""
        return ""

    def _folded(self, node: ast.AST) -> str | None:
        """Text of an expression made of constants."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._folded(node.left), self._folded(node.right)
            return left + right if left is not None and right is not None else None
        if isinstance(node, ast.JoinedStr):
            parts = [self._folded(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
            return "".join(p for p in parts if p is not None) if None not in parts else None
        return None


def _own_nodes(part: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes inside it, which count on their own."""
    waiting: list[ast.AST] = [part.body] if isinstance(part, ast.Lambda) else []
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        waiting = list(part.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name of what is imported under it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
