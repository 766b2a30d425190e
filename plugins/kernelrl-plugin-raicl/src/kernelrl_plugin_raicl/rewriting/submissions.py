"""Submissions of KernelBot: `custom_kernel(data)` for a `ref_kernel(data)`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from kernelrl_plugin_raicl.rewriting.modules import bound_names, source_of, used_definitions
from kernelrl_plugin_raicl.rewriting.pair import Pair, Unrewritable, parse_part

__all__ = ["rewrite_submission"]

_OWN = ("task", "utils")
"""Modules of the evaluator of KernelBot."""
_SEED = "int(torch.randint(0, 2**31, (1,)))"
_MODULES = "import torch\nimport torch.nn as nn\n"


def rewrite_submission(reference: str, sizes: Mapping[str, Any], submission: str) -> Pair:
    """A reference whose `Model` calls `ref_kernel`, and a file whose `ModelNew` calls `custom_kernel`.

    Args:
        reference: module with `ref_kernel(data)` and `generate_input(…, seed)`.
        sizes: arguments of `generate_input`; the seed is drawn anew for every call.
        submission: module with `custom_kernel(data)`.

    Raises:
        Unrewritable: the sources have another form.
    """
    tree = parse_part(reference, "reference")
    generate = _function(tree, "generate_input", "reference")
    spreads = _spreads(generate)
    known = {item.arg for item in (*generate.args.posonlyargs, *generate.args.args, *generate.args.kwonlyargs)}
    if unknown := sorted(set(sizes) - known - {"seed"}):
        raise Unrewritable("size that generate_input does not take", unknown[0])
    values = [f"{name}={value!r}" for name, value in sizes.items() if name != "seed"]
    values += [f"seed={_SEED}"] if "seed" in known else []
    made = f"generate_input({', '.join(values)})"
    functions = [_function(tree, "ref_kernel", "reference"), generate]
    definitions = used_definitions([*ast.parse(_MODULES).body, *_without_own(tree)], [*functions, *_model("Model")])
    text = f"{source_of([*definitions, *_model('Model', 'ref_kernel', spreads)])}\n\n"
    text += f"def get_inputs():\n    return {f'list({made})' if spreads else f'[{made}]'}\n\n\n"
    text += "def get_init_inputs():\n    return []\n"
    own = parse_part(submission, "submission")
    _function(own, "custom_kernel", "submission")
    body = [*ast.parse(_MODULES).body, *_without_own(own)]
    return Pair(text, source_of(_unique_imports([*body, *_model("ModelNew", "custom_kernel", spreads)])))


def _model(name: str, function: str = "", spreads: bool = True) -> list[ast.stmt]:
    if not function:
        return ast.parse(f"class {name}(nn.Module):\n    pass\n\ntorch").body[1:]
    arguments = "*data" if spreads else "data"
    lines = f"class {name}(nn.Module):\n    def forward(self, {arguments}):\n        return {function}(data)"
    return ast.parse(lines).body


def _spreads(generate: ast.FunctionDef) -> bool:
    """Whether `generate_input` returns a tuple, whose elements become the inputs."""
    returns = [node.value for node in ast.walk(generate) if isinstance(node, ast.Return)]
    if not returns:
        raise Unrewritable("generate_input returns nothing")
    return all(isinstance(value, ast.Tuple) for value in returns)


def _function(tree: ast.Module, name: str, part: str) -> ast.FunctionDef:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    raise Unrewritable(f"{part} has no {name}")


def _without_own(tree: ast.Module) -> list[ast.stmt]:
    """The statements without imports of KernelBot's evaluator, and functions without annotations of its types."""
    removed = {
        name
        for item in tree.body
        if isinstance(item, ast.ImportFrom) and item.module in _OWN
        for name in bound_names(item)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            if isinstance(node.returns, ast.Name) and node.returns.id in removed:
                node.returns = None
            for item in node.args.args:
                if isinstance(item.annotation, ast.Name) and item.annotation.id in removed:
                    item.annotation = None
    kept = [item for item in tree.body if not (isinstance(item, ast.ImportFrom) and item.module in _OWN)]
    return [
        item
        for item in kept
        if not (isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and _uses(item, removed))
        and not (isinstance(item, ast.If) and "__name__" in ast.unparse(item.test))
    ]


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(node))


def _unique_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    seen: set[str] = set()
    found: list[ast.stmt] = []
    for item in body:
        text = ast.unparse(item)
        if not isinstance(item, ast.Import | ast.ImportFrom) or text not in seen:
            found.append(item)
        seen.add(text)
    return found
