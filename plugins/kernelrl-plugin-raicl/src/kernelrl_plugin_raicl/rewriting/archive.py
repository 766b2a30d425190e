"""Rows of the AI CUDA Engineer archive: a `.cu` text whose functions take the place of a functional module."""

from __future__ import annotations

import ast

from kernelrl_plugin_raicl.rewriting.cpp import Bound, Extension, read_extension
from kernelrl_plugin_raicl.rewriting.modules import (
    bound_names,
    class_named,
    rename_classes,
    source_of,
    used_definitions,
)
from kernelrl_plugin_raicl.rewriting.pair import Pair, Unrewritable, parse_part

__all__ = ["inline_extension", "rewrite_archive"]

_HEADER = "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"


def rewrite_archive(reference: str, functional: str, kernel: str) -> Pair:
    """A reference, and a file whose `ModelNew` builds the CUDA source with `load_inline`.

    Args:
        reference: module with `Model`, `get_inputs` and `get_init_inputs`; it is kept as it is.
        functional: module whose `Model.forward(…, fn=module_fn)` passes its parameters to `fn`.
        kernel: CUDA source that binds a function in the place of `fn`.

    Raises:
        Unrewritable: the sources have another form.
    """
    defined = {name for statement in parse_part(reference, "reference").body for name in bound_names(statement)}
    for needed in ("Model", "get_inputs", "get_init_inputs"):
        if needed not in defined:
            raise Unrewritable(f"reference has no {needed}")
    extension = read_extension(kernel)
    tree = rename_classes(parse_part(functional, "functional module"), {"Model": "ModelNew"})
    model = class_named(tree.body, "ModelNew")
    forward = next((item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "forward"), None)
    if forward is None:
        raise Unrewritable("class has no forward", "Model")
    parameter, function = _injected(forward)
    _call_extension(forward, parameter, _signature(tree, function), extension)
    used = used_definitions([*ast.parse(_HEADER).body[:2], *tree.body], [model])
    imports = [
        item for item in used if isinstance(item, ast.Import | ast.ImportFrom) and ast.unparse(item) not in _HEADER
    ]
    definitions = [item for item in used if not isinstance(item, ast.Import | ast.ImportFrom)]
    bound = list({item.name: item for item in extension.functions.values()}.values())
    built = inline_extension(extension.source, bound)
    return Pair(reference.strip("\n") + "\n", f"{_HEADER}{source_of(imports)}\n{built}\n\n{source_of(definitions)}")


def inline_extension(source: str, bound: list[Bound]) -> str:
    """Statements that build a CUDA source as `extension`."""
    declarations = "\n".join(item.declaration for item in bound)
    quoted = f'"{declarations}"' if len(bound) == 1 else f'"""\n{declarations}\n"""'
    names = ", ".join(f'"{item.name}"' for item in bound)
    return (
        f"cuda_source = {_quoted(source)}\n\ncpp_source = {quoted}\n\n"
        f'extension = load_inline(\n    name="{bound[0].name}_extension",\n    cpp_sources=cpp_source,\n'
        f"    cuda_sources=cuda_source,\n    functions=[{names}],\n)\n"
    )


def _quoted(text: str) -> str:
    mark = '"""' if '"""' not in text else "'''"
    if mark in text:
        return repr(text)
    return f"{'r' if chr(92) in text else ''}{mark}\n{text}{mark}"


def _injected(forward: ast.FunctionDef) -> tuple[str, str]:
    """The parameter of `forward` that defaults to a function, which is removed, and the function."""
    arguments = forward.args
    places = [*arguments.posonlyargs, *arguments.args]
    first = len(places) - len(arguments.defaults)
    for at, default in enumerate(arguments.defaults):
        if isinstance(default, ast.Name) and first + at == len(places) - 1:
            arguments.args.pop()
            arguments.defaults.pop()
            return places[-1].arg, default.id
    for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if isinstance(value, ast.Name) and len(arguments.kwonlyargs) == 1:
            arguments.kwonlyargs, arguments.kw_defaults = [], []
            return item.arg, value.id
    raise Unrewritable("forward has no last parameter that defaults to a function")


def _signature(tree: ast.Module, name: str) -> list[str]:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return [item.arg for item in (*statement.args.posonlyargs, *statement.args.args)]
    raise Unrewritable("functional module does not define its function", name)


def _call_extension(forward: ast.FunctionDef, parameter: str, order: list[str], extension: Extension) -> None:
    """Call the bound function wherever `forward` calls its parameter."""
    bound = extension.functions.get("forward") or next(iter(extension.functions.values()))
    if len(extension.functions) > 1 and "forward" not in extension.functions:
        raise Unrewritable("CUDA source binds several functions and none is called forward")
    calls = 0
    for node in ast.walk(forward):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != parameter:
            continue
        calls += 1
        node.func = ast.Attribute(ast.Name("extension", ast.Load()), bound.name, ast.Load())
        named = {item.arg: item.value for item in node.keywords}
        rest = order[len(node.args) :]
        if not set(named) <= set(rest) or any(isinstance(item, ast.Starred) for item in node.args):
            raise Unrewritable("call of the function with other arguments than it takes")
        values = [named[name] for name in rest if name in named]
        if [name for name in rest if name in named] != rest[: len(values)]:
            raise Unrewritable("call of the function omits arguments")
        node.args, node.keywords = [*node.args, *values], []
        if len(node.args) != len(bound.parameters):
            raise Unrewritable(
                "call of the function omits arguments"
                if len(node.args) < len(bound.parameters)
                else "bound function takes fewer arguments than the call has"
            )
    if not calls or any(isinstance(node, ast.Name) and node.id == parameter for node in ast.walk(forward)):
        raise Unrewritable("forward uses its function in another way than calling it")
