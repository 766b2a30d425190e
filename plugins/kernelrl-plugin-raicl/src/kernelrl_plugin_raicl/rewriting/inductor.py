"""Rows of KernelBook: `NAMENew`, whose forward passes its tensors to `call(args)` of Inductor."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

import attrs

from kernelrl_plugin_raicl.rewriting.calls import inline_call
from kernelrl_plugin_raicl.rewriting.inductor_kernels import HELPERS, Kernel, embedded_kernel, plain_name, read_kernel
from kernelrl_plugin_raicl.rewriting.modules import (
    class_named,
    reference_module,
    rename_classes,
    source_of,
    used_definitions,
    used_names,
)
from kernelrl_plugin_raicl.rewriting.pair import Pair, Unrewritable, parse_part
from kernelrl_plugin_raicl.rewriting.sizes import assert_sizes, read_sizes

__all__ = ["rewrite_inductor"]

_INDUCTOR = ("torch._inductor", "torch._C", "torch._dynamo", "ctypes", "triton")
_HEADER = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
_LIBDEVICE = "from triton.language.extra import libdevice\n"


@attrs.frozen
class _File:
    kernels: Mapping[str, Kernel]
    call: ast.FunctionDef
    others: list[ast.stmt]
    """Imports and definitions that are not of Inductor."""


def rewrite_inductor(reference: str, kernel: str, entry: str) -> Pair:
    """A reference with `Model`, and a file whose `ModelNew.forward` launches plain Triton kernels.

    `call` is inlined into `forward`. Results that only a backward pass needs are removed. Sizes are read from the
    inputs where every kernel treats the elements of equally shaped tensors alike; elsewhere `forward` asserts them.

    Args:
        reference: module with the class `entry`, `get_inputs` and `get_init_inputs`.
        kernel: file with the kernels, `call` and the class `entry` + `New`.

    Raises:
        Unrewritable: the sources have another form.
    """
    original = parse_part(reference, "reference")
    text = reference_module(original, entry)
    # `reference_module` renames in place.
    model = class_named(original.body, "Model")
    file = _read_file(parse_part(kernel, "kernel file"))
    rest = rename_classes(ast.Module(file.others, []), {f"{entry}New": "ModelNew"})
    new = class_named(rest.body, "ModelNew")
    forward = _method(new, "forward")
    body = inline_call(forward, file.call, file.kernels)
    is_fixed = not read_sizes(body, model)
    if is_fixed:
        assert_sizes(body)
    forward.body = body.statements()
    _refuse_unknown_names(forward)
    _remove_unreachable_methods(new)
    if not body.kernels:
        raise Unrewritable("no kernel computes an output")
    kernels = _with_device_functions(body.kernels, file.kernels)
    used = used_definitions([*_imports(), *rest.body], [new])
    text_new = _HEADER + (_LIBDEVICE if any(item.uses_libdevice for item in kernels) else "")
    extra = [
        item for item in used if isinstance(item, ast.Import | ast.ImportFrom) and ast.unparse(item) not in _HEADER
    ]
    definitions = [item for item in used if not isinstance(item, ast.Import | ast.ImportFrom)]
    helpers = [HELPERS[name] for name in sorted({name for item in kernels for name in item.helpers})]
    text_new += source_of(extra) + "\n\n"
    text_new += source_of([*helpers, *(item.function for item in kernels), *definitions])
    return Pair(text, text_new, is_fixed)


def _read_file(tree: ast.Module) -> _File:
    kernels: dict[str, Kernel] = {}
    call: ast.FunctionDef | None = None
    others: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name="call"):
                call = statement
            case ast.FunctionDef(name=name) if any("triton" in ast.unparse(item) for item in statement.decorator_list):
                kernels[name] = read_kernel(statement)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="triton")) as made):
                kernels[name] = embedded_kernel(name, made)
            case _ if _is_inductor(statement):
                pass
            case _:
                others.append(statement)
    if call is None:
        raise Unrewritable("kernel file has no function call")
    if not kernels:
        raise Unrewritable("kernel file has no Triton kernel")
    return _File(_renamed(kernels), call, others)


def _refuse_unknown_names(forward: ast.FunctionDef) -> None:
    """Refuse a `forward` that reads a name before it is assigned."""
    known = {"self", "torch", "triton", *(item.arg for item in forward.args.args)}
    for statement in forward.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                used = used_names(value)
            case ast.Expr(value=ast.Call(func=ast.Subscript(), args=arguments)):
                name, used = "", {item for node in arguments for item in used_names(node)}
            case _:
                name, used = "", used_names(statement)
        if unknown := sorted(used - known):
            raise Unrewritable("call reads an unknown name", unknown[0])
        known.add(name)


def _with_device_functions(launched: Sequence[Kernel], known: Mapping[str, Kernel]) -> list[Kernel]:
    """The launched kernels, after the device functions that they call."""
    found = list(launched)
    for kernel in found:
        names = used_names(kernel.function)
        found += [other for other in known.values() if other.function.name in names and other not in found]
    return [*found[len(launched) :], *launched]


def _renamed(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels under their names in the file, defined with plain names."""
    taken: set[str] = set()
    for name, kernel in kernels.items():
        plain = plain_name(name)
        kernel.function.name = name if plain in taken else plain
        taken.add(kernel.function.name)
    return dict(kernels)


def _is_inductor(statement: ast.stmt) -> bool:
    match statement:
        case ast.ImportFrom(module=module) if module is not None:
            return module.startswith(_INDUCTOR)
        case ast.Import(names=names):
            return all(item.name.startswith(_INDUCTOR) for item in names)
        case ast.Assign(value=value):
            text = ast.unparse(value)
            return "torch._C" in text or text == "AsyncCompile()"
        case ast.Expr() | ast.Delete() | ast.If():
            return True
        case ast.FunctionDef(name=name):
            return name.startswith("benchmark_") or name in ("get_inputs", "get_init_inputs")
    return False


def _imports() -> Iterable[ast.stmt]:
    return ast.parse(_HEADER).body


def _method(found: ast.ClassDef, name: str) -> ast.FunctionDef:
    for item in found.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return item
    raise Unrewritable(f"class has no {name}", found.name)


def _remove_unreachable_methods(found: ast.ClassDef) -> None:
    """Remove methods that neither the constructor nor `forward` uses, unless a base class may call them."""
    if any(ast.unparse(base) not in ("nn.Module", "torch.nn.Module", "Module") for base in found.bases):
        return
    methods = {item.name: item for item in found.body if isinstance(item, ast.FunctionDef)}
    reached: set[str] = set()
    waiting = [name for name in methods if name == "forward" or (name.startswith("__") and name.endswith("__"))]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            used = {node.attr for node in ast.walk(methods[name]) if isinstance(node, ast.Attribute)}
            waiting += [other for other in methods if other in used]
    found.body = [item for item in found.body if not (isinstance(item, ast.FunctionDef) and item.name not in reached)]
