"""Rules on a candidate's Python: kernels, library compute, fallbacks, the reference, and access to the process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelrl_core.api.checkers import SourceFacts
from kernelrl_core.api.sources import ENTRY, children, targets_of
from kernelrl_plugin_checkers.library import METHODS, is_layer, is_library_compute
from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["python_breaches"]

_REFERENCE = "Model"
_FRAMES = frozenset(
    {"f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "__globals__", "__subclasses__", "__closure__"}
)
_PROCESS_MODULES_TEXT = """
_thread asyncio atexit base64 concurrent ctypes gc http inspect kernelrl_build kernelrl_core kernelrl_judge
kernelrl_sandbox linecache marshal multiprocessing pickle requests runpy signal socket subprocess threading
urllib weakref zlib
"""
_PROCESS_MODULES = frozenset(_PROCESS_MODULES_TEXT.split())
_PROCESS_NAMES_TEXT = """
builtins.exec builtins.eval builtins.compile builtins.open exec eval open __import__ os.environ os.fork os.system
os.kill sys._getframe sys._current_frames sys.modules sys.settrace sys.setprofile sys.addaudithook sys.monitoring
torch.get_rng_state torch.set_rng_state torch.initial_seed torch.cuda.get_rng_state torch.default_generator
torch.set_float32_matmul_precision torch.set_default_dtype torch.load torch._C
"""
_PROCESS_NAMES = frozenset(_PROCESS_NAMES_TEXT.split())
_PATCHABLE = frozenset({"torch", "time", "triton", "builtins", "sys", "gc", "inspect", "numpy"})


def python_breaches(reading: Reading, facts: SourceFacts) -> Iterator[Breach]:
    """All breaches in the Python of a candidate.

    Raises:
        HiddenSource: reading it takes too many steps.
    """
    yield from _kernels(facts)
    yield from _inherited(reading)
    yield from _computing(reading, facts)
    for node in reading.nodes:
        if note := _access(reading, node):
            yield "process_access", getattr(node, "lineno", None), note


def _kernels(facts: SourceFacts) -> Iterator[Breach]:
    if not any(kernel.launched for kernel in facts.kernels):
        if facts.unread:
            yield "unreadable_source", None, f"it is not known whether a kernel is launched: {facts.unread}"
        else:
            yield "no_kernel", None, "the source launches no kernel"
        return
    for kernel in facts.kernels:
        if not kernel.launched:
            yield "unused_kernel", kernel.line, f"kernel {kernel.name} is launched nowhere"


def _inherited(reading: Reading) -> Iterator[Breach]:
    classes = {node.name for node in reading.nodes if isinstance(node, ast.ClassDef)}
    for node in reading.nodes:
        if not isinstance(node, ast.ClassDef) or node.name != ENTRY:
            continue
        if not any(
            reading.dotted(base).rpartition(".")[2] == _REFERENCE or _name(base) == _REFERENCE for base in node.bases
        ):
            continue
        if _REFERENCE not in classes:
            yield "inherited_reference", node.lineno, f"the file does not define {_REFERENCE}"
        entries = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"]
        if not entries:
            yield "inherited_reference", node.lineno, f"forward is that of {_REFERENCE}"
        for call in (below for entry in entries for below in reading.own_nodes(entry)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_parent(call.func):
                yield "inherited_reference", call.lineno, f"a call of {_REFERENCE}'s forward"


def _is_parent(function: ast.Attribute) -> bool:
    """Whether an attribute is `super().forward`, `Model.forward` or the same of `__call__`."""
    owner = function.value.func if isinstance(function.value, ast.Call) else function.value
    return function.attr in ("forward", "__call__") and _name(owner) in ("super", _REFERENCE)


def _computing(reading: Reading, facts: SourceFacts) -> Iterator[Breach]:
    """Library compute in code that `forward` can reach; in an exception handler it is a fallback."""
    kernels = {
        kernel.name
        for kernel in facts.kernels
        for body in reading.index.bodies.get(kernel.name, ())
        if isinstance(body, ast.FunctionDef) and body.lineno == kernel.line
    }
    for part in reading.index.reached(stop=kernels):
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        own = list(reading.own_nodes(part))
        given = part.args
        parameters = {item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        handlers = _handlers(reading, own)
        for node in own:
            if isinstance(node, ast.expr) and (note := _computes(reading, node, parameters)):
                yield "library_compute", node.lineno, note
                if id(node) in handlers:
                    yield "fallback", node.lineno, f"{note}, in an exception handler"


def _handlers(reading: Reading, own: list[ast.AST]) -> set[int]:
    """Ids of the nodes in exception handlers that do not end by raising."""
    found: set[int] = set()
    waiting: list[ast.AST] = [
        node for node in own if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise)
    ]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            reading.spend()
            found.add(id(node))
            waiting += children(node)
    return found


def _computes(reading: Reading, node: ast.expr, parameters: set[str]) -> str:
    """Name of the library compute of a node; empty if it has none."""
    if isinstance(node, ast.BinOp):
        return "a matrix product" if isinstance(node.op, ast.MatMult) else ""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    name = reading.dotted(function)
    if name and is_library_compute(name):
        return name
    if isinstance(function, ast.Call) and is_layer(layer := reading.dotted(function.func)):
        return f"a call of {layer}"
    if isinstance(function, ast.Attribute) and function.attr in METHODS and _root(function) in parameters - {"self"}:
        return f"the method {function.attr} of a tensor"
    held = function.attr if isinstance(function, ast.Attribute) else _name(function)
    for value in reading.index.bodies.get(held, ()):
        if isinstance(value, ast.Call) and is_layer(layer := reading.dotted(value.func)):
            return f"a call of the layer {held}, a {layer}"
    return ""


def _root(node: ast.expr) -> str:
    """Name at the beginning of a chain of attributes and calls, such as `x` in `x.float().softmax`."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return _name(node)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _access(reading: Reading, node: ast.AST) -> str:
    """Access of a node to the process; empty if it has none."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        return next((f"import of {name}" for name in names if name.partition(".")[0] in _PROCESS_MODULES), "")
    if isinstance(node, ast.Attribute) and node.attr in _FRAMES:
        return f"attribute {node.attr}"
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        name = reading.dotted(node)
        return name if name in _PROCESS_NAMES or name.startswith("torch._C.") else ""
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            name = reading.dotted(target) if isinstance(target, ast.Attribute) else ""
            if name.partition(".")[0] in _PATCHABLE and any(targets_of(target)):
                return f"assignment to {name}"
    return ""
