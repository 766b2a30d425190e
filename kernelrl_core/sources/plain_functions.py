"""Kernels and tasks that are plain functions, and files of C++ and CUDA, as the classes that an evaluator loads.

Every line of the file keeps its number: the class follows the text.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kernelrl_core.errors import UsageError, suggestion
from kernelrl_sources.syntax import parse

__all__ = ["EXTENSION_SUFFIXES", "as_model", "as_task", "extension_as_model", "in_own_file"]

EXTENSION_SUFFIXES = (".cpp", ".cc", ".cxx", ".cu", ".hip")
"""Files with kernels in C++, CUDA or HIP."""
_DEVICE_SUFFIXES = (".cu", ".hip")
_INPUTS = ("get_inputs", "get_init_inputs")
_REFERENCE = "reference"
_MODEL = """

import torch.nn as _nn


class {name}(_nn.Module):
    def forward(self, *inputs):
        return {function}(*inputs)
"""
_BUILD = """
from torch.utils.cpp_extension import load_inline

_extension = load_inline("""
"""What follows the text of a file of C++, CUDA or HIP."""
_CANDIDATE_FILE = "candidate.py"
"""Name of a kernel in the messages of an evaluator."""
_FRAME = re.compile(r"^( *)line (\d+), in [\w<>]+: (.*)$")
"""A line of a kernel, in a message."""
_CALL = re.compile(r"\b_extension\.(\w+)\(")
_NO_INIT_INPUTS = """

def get_init_inputs():
    return []
"""
_BOUND = re.compile(r"\.\s*def\s*\(\s*\"(\w+)\"")
"""A function that `PYBIND11_MODULE` binds."""
_DEFINITION = re.compile(
    r"^[ \t]*(?!static\b|inline\b|template\b|return\b|else\b)"
    r"(?P<type>[A-Za-z_][\w:]*(?:\s*<[^<>;{}()]*>)?(?:\s*[&*])?)\s+"
    r"(?P<name>[A-Za-z_]\w*)\s*\((?P<arguments>[^;{}()]*(?:\([^()]*\)[^;{}()]*)*)\)\s*\{",
    re.MULTILINE,
)
_TENSOR = re.compile(r"\bTensor\b")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def as_model(source: str, function: str, file: str) -> str:
    """A source with the class `ModelNew`, which calls a function of the source, or is one of its classes. Text that is
    no Python is unchanged.

    Args:
        function: name, possibly dotted, such as `RMSNorm.apply`; or a class that is constructed as the task's `Model`.
        file: for the beginning of messages.

    Raises:
        UsageError: the module has no such name, or has `ModelNew` already.
    """
    tree = _tree(source)
    if tree is None:
        return source
    names = _names(tree)
    if "ModelNew" in names:
        raise UsageError(f"{file}: it defines ModelNew; --function is for a file without", fix="remove --function")
    if not all(part.isidentifier() for part in function.split(".")):
        raise UsageError(f"--function {function}: not the name of a function")
    if function.partition(".")[0] not in names:
        raise UsageError(f"{file}: it defines no {function!r}; {suggestion(function, names)}", see="kernel-files")
    classes = {item.name for item in tree.body if isinstance(item, ast.ClassDef)}
    if function in classes:
        return f"{source.rstrip()}\n\n\nclass ModelNew({function}):\n    pass\n"
    return f"{source.rstrip()}\n{_MODEL.format(name='ModelNew', function=function)}"


def as_task(source: str, file: str) -> str:
    """A task in KernelBench's format. One that is a function with `get_inputs` gets the class `Model`, which calls it.

    The function is `reference`, or the only one beside `get_inputs` whose name has no leading underscore.

    Raises:
        UsageError: it has several functions, and none is `reference`.
    """
    tree = _tree(source)
    if tree is None:
        return source
    names = _names(tree)
    if "Model" in names or "get_inputs" not in names:
        return source
    functions = [item.name for item in tree.body if isinstance(item, ast.FunctionDef)]
    public = [name for name in functions if name not in _INPUTS and not name.startswith("_")]
    if not public:
        return source
    if _REFERENCE not in public and len(public) > 1:
        raise UsageError(
            f"{file}: not a task: {len(public)} functions could be the reference: {', '.join(public)}",
            fix="name it reference, or begin the names of the others with _",
            see="kernel-files",
        )
    chosen = _REFERENCE if _REFERENCE in public else public[0]
    last = "" if "get_init_inputs" in names else _NO_INIT_INPUTS
    return f"{source.rstrip()}\n{_MODEL.format(name='Model', function=chosen)}{last}"


def extension_as_model(source: str, function: str, file: str) -> str:
    """A file of C++, CUDA or HIP as Python that builds it with `load_inline` and calls one of its functions.

    Every line of the file has its number in the Python source, too.

    Args:
        function: name; empty: the only function with tensors.

    Raises:
        UsageError: there is no such function, or several.
    """
    code = _COMMENTS.sub(lambda match: "\n" * match[0].count("\n"), source)
    bound = _BOUND.findall(code)
    found = {match["name"]: match for match in _DEFINITION.finditer(code) if _takes_tensors(match)}
    names = list(dict.fromkeys(bound)) or list(found)
    if not names:
        raise UsageError(
            f"{file}: no function takes or returns a torch::Tensor",
            fix="add one that launches the kernel, such as torch::Tensor relu(torch::Tensor x)",
            see="kernel-files",
        )
    if not function and len(names) > 1:
        raise UsageError(f"{file}: it has the functions {', '.join(names)}", fix="choose one: --function NAME")
    name = function or names[0]
    if name not in names:
        raise UsageError(f"{file}: it has no function {name!r} with tensors; {suggestion(name, names)}")
    quotes = next((mark for mark in ("'''", '"""') if mark not in source), "")
    if not quotes or source.rstrip(" \t").endswith("\\"):
        raise UsageError(f"{file}: it cannot be quoted in Python: it has triple quotes of both kinds, or ends with \\")
    on_device = Path(file).suffix in _DEVICE_SUFFIXES
    declaration = "" if bound else f"{found[name]['type']} {name}({' '.join(found[name]['arguments'].split())});"
    sources = f"cpp_sources={declaration!r}, cuda_sources=_SOURCE" if on_device else "cpp_sources=_SOURCE"
    functions = "" if bound else f", functions=[{name!r}]"
    extension = re.sub(r"\W", "_", Path(file).stem) or "kernel"
    ending = "" if source.endswith("\n") else "\n"
    return (
        f"_SOURCE = r{quotes}{source}{ending}{quotes}\n"
        f"{_BUILD}name={extension!r}, {sources}{functions})\n"
        + _MODEL.format(name="ModelNew", function=f"_extension.{name}")
    )


def in_own_file(message: str, source: str, file: str) -> str:
    """A message about a kernel with the name of its file and the lines of it.

    A line that only the source has, which follows the text of a file of C++, CUDA or HIP, becomes that of the function
    that it calls.

    Args:
        message: of an evaluator.
        source: of the kernel, as the evaluator has it.
    """
    text, separator, _ = source.rpartition(_BUILD)
    last = text.count("\n") if separator else source.count("\n") + 1
    lines = []
    for line in message.replace(_CANDIDATE_FILE, file).split("\n"):
        frame = _FRAME.match(line)
        if frame is None or int(frame[2]) <= last:
            lines.append(line)
        elif (call := _CALL.search(frame[3])) is not None:
            lines.append(f"{frame[1]}{file}:{_line_of(call[1], text)}, in {call[1]}")
    return "\n".join(lines)


def _line_of(function: str, text: str) -> int:
    """The line in which a function of C++ begins, or else the one that binds it."""
    definition = next((found for found in _DEFINITION.finditer(text) if found["name"] == function), None)
    place = definition.start("name") if definition is not None else max(0, text.find(f'"{function}"'))
    return text.count("\n", 0, place) + 1


def _takes_tensors(match: re.Match[str]) -> bool:
    return bool(_TENSOR.search(match["type"]) or _TENSOR.search(match["arguments"]))


def _tree(source: str) -> ast.Module | None:
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names(tree: ast.Module) -> set[str]:
    """Names that the statements of a module bind, also those in conditions and exception handlers."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found.update(alias.asname or alias.name.partition(".")[0] for alias in aliases)
        waiting += ast.iter_child_nodes(node)
    return found
