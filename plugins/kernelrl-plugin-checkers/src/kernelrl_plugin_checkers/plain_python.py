"""The Python around kernels: what launches them is plain, and nothing else is taken for granted.

An allowlist. Each construct, module, attribute and builtin that an honest candidate needs is named in `plain_names`;
the rest is told. What a kernel of Triton does in its body is for `triton_bodies` to say, and whether a library computes
for `python_compute`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator

from kernelrl_core.reachability import free_names
from kernelrl_plugin_checkers import plain_names as plain
from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["unusual_python"]

_RULE = "unusual_python"
_PYTHONS = frozenset(dir(builtins))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FIRST_ARGUMENTS = ("self", "cls", "ctx")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NEVER: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "an async function",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Nonlocal: "nonlocal",
    ast.MatchClass: "a class in a match statement",
}
_COMPILERS = re.compile(r"(?:/usr/bin/|/opt/rocm\S*/bin/)?(?:hipcc|nvcc|gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")

_Note = tuple[ast.AST, str]


def unusual_python(reading: Reading, kernels: Collection[int]) -> Iterator[Breach]:
    """Constructs outside of kernels that are not among those that launching kernels needs.

    Args:
        kernels: identities (`id`) of the functions whose bodies Triton compiles.
    """
    for node, note in _File(reading, kernels).notes():
        yield _RULE, getattr(node, "lineno", None), note


class _File:
    """A file, and what its own names are."""

    def __init__(self, reading: Reading, kernels: Collection[int]) -> None:
        self._reading = reading
        self._kernels = kernels
        self._bound, self._fields = _bound_attributes(reading)
        self._classes = {node.name for node in reading.nodes if isinstance(node, ast.ClassDef)}
        self._methods = {
            part.name
            for node in reading.nodes
            if isinstance(node, ast.ClassDef)
            for part in node.body
            if isinstance(part, ast.FunctionDef)
        }
        self._functions = {node.name for node in reading.tree.body if isinstance(node, ast.FunctionDef)}
        self._names = (
            self._classes
            | reading.modules.keys()
            | {
                node.id if isinstance(node, ast.Name) else node.name
                for node in reading.nodes
                if isinstance(node, ast.FunctionDef)
                or (isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
            }
        )
        """Names that the file binds outside of parameters."""
        self._free: set[int] | None = None
        self._words: frozenset[str] | None = None
        self._addresses: set[int] = set()
        """Identities of the calls of `data_ptr` whose value goes straight into a launch."""

    def notes(self) -> Iterator[_Note]:
        waiting: list[ast.AST] = list(reversed(self._reading.tree.body))
        while waiting:
            node = waiting.pop()
            self._reading.spend()
            look = _LOOKS.get(type(node))
            below: list[ast.AST] | None = None
            if type(node) in _NEVER:
                yield node, f"{_NEVER[type(node)]}: plain functions are enough"
            elif look is not None:
                yield from look(self, node)
                below = self._left_to_look_at(node)
            waiting += reversed(list(ast.iter_child_nodes(node)) if below is None else below)

    def _left_to_look_at(self, node: ast.AST) -> list[ast.AST] | None:
        """What of a node is still to be looked at; None for all of it."""
        if isinstance(node, ast.FunctionDef) and id(node) in self._kernels:
            return list(_around(node))
        if isinstance(node, ast.Attribute):
            root: ast.AST = node
            while isinstance(root, ast.Attribute):
                root = root.value
            return [] if isinstance(root, ast.Name) and self._name_of(node) else [root]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            return list(node.args[1:]) if self._name_of(node.args[0]) in plain.MODULES else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            # `nn = torch.nn`: another name, which is followed.
            name = self._name_of(node.value) if isinstance(node.value, ast.Attribute | ast.Name) else ""
            if name in plain.MODULES and len(self._reading.index.bodies[node.targets[0].id]) == 1:
                return []
        return None

    # Names

    def _name_of(self, node: ast.AST) -> str:
        """Dotted name of something imported, or empty."""
        name = self._reading.dotted(node)
        if "." in name:
            return name
        return name if isinstance(node, ast.Name) and name and node.id in self._reading.modules else ""

    def _imported(self, name: str) -> str:
        """What is wrong with a dotted name that is imported from a module, or empty text."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            offered = plain.MODULES.get(module)
            if offered is None:
                continue
            rest = parts[end:]
            if not rest:
                return ""
            if not offered:
                return "" if plain.is_open(module, ".".join(rest)) else f"{name} is no name of {module} for kernels"
            if module == "torch" and rest[0] == "ops":
                is_own = len(rest) < 2 or rest[1] in self._own_words()
                return "" if is_own else f"{name}: operators that no source of the file registers"
            if rest[0] not in offered:
                return f"{name} is not among the names of {module} that launching kernels needs"
            return next(filter(None, (self._attribute(part) for part in rest[1:])), "")
        return f"module {parts[0]}: use torch, triton, math and the standard types"

    def _attribute(self, name: str, *, of_self: bool = False) -> str:
        """What is wrong with reading an attribute of a value, or empty text."""
        if name.startswith("__") and name.endswith("__"):
            return "" if name in plain.SPECIAL_NAMES else f"attribute {name}"
        if name in plain.REFUSED or name in plain.OWN_PRIVATE:
            return f"attribute {name}: launching a kernel needs values, shapes, types and devices"
        if name in plain.ATTRIBUTES or name in self._fields:
            return ""
        if name.startswith("_") and not of_self:
            return f"private attribute {name}"
        if name in self._bound or name in self._own_words():
            return ""
        return f"attribute {name}, which neither the file nor a tensor is known to have"

    def _own_words(self) -> frozenset[str]:
        """Words in the texts of the file: what its C++ defines is called by them."""
        if self._words is None:
            self._words = frozenset(
                word
                for node in self._reading.nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                for word in _WORD.findall(node.value)
            )
        return self._words

    def _is_free(self, node: ast.Name) -> bool:
        """Whether no function around a name binds it."""
        if self._free is None:
            self._free = free_names(self._reading.tree, self._reading.spend)
            for function in self._reading.nodes:
                if isinstance(function, _FUNCTIONS):
                    for part in _around(function):
                        self._free |= {id(name) for name in self._reading.walk(part) if isinstance(name, ast.Name)}
        return id(node) in self._free

    def _is_missing(self, node: ast.Name) -> bool:
        """Whether nothing binds a name: a mistake, which ends the call."""
        return node.id not in self._names and node.id not in _PYTHONS and self._is_free(node)

    # Expressions

    def name(self, node: ast.Name) -> Iterator[_Note]:
        if not isinstance(node.ctx, ast.Load):
            if node.id.startswith("__") and node.id.endswith("__") and node.id not in plain.SPECIAL_NAMES:
                yield node, f"{node.id} is Python's own to set"
        elif node.id in self._reading.modules:
            name = self._reading.modules[node.id]
            if name in plain.MODULES and self._is_free(node):
                yield node, f"the module {name} as a value: name what is needed of it"
        elif (
            (node.id in _PYTHONS or node.id.startswith("__")) and node.id not in plain.BUILTINS and self._is_free(node)
        ):
            yield node, f"{node.id}: launching a kernel does not need it"

    def attribute(self, node: ast.Attribute) -> Iterator[_Note]:
        name = self._name_of(node)
        if not isinstance(node.ctx, ast.Load):
            note = self._stored(node, name)
        elif name:
            note = self._imported(name) or (f"the module {name} as a value" if name in plain.MODULES else "")
        else:
            note = self._chain(node)
        if note:
            yield node, note

    def _chain(self, node: ast.Attribute) -> str:
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            root = inner.value
            if isinstance(root, ast.Name) and self._is_missing(root):
                return ""
            if not self._is_usual_special(inner):
                is_own = isinstance(root, ast.Name) and (root.id in _FIRST_ARGUMENTS or root.id in self._classes)
                note = self._attribute(inner.attr, of_self=is_own)
                if not note and isinstance(root, ast.Name) and root.id in self._functions and self._is_free(root):
                    note = self._of_function(root.id, inner.attr)
                if note:
                    return note
            inner = root
        return ""

    def _is_usual_special(self, node: ast.Attribute) -> bool:
        if node.attr == "__init__":
            root = node.value
            if isinstance(root, ast.Call):
                return isinstance(root.func, ast.Name) and root.func.id == "super"
            name = root.id if isinstance(root, ast.Name) else ""
            return name in self._classes or self._name_of(root).startswith("torch.nn.")
        return node.attr == "__class__" and isinstance(node.value, ast.Name) and node.value.id == "self"

    def _of_function(self, function: str, attribute: str) -> str:
        if attribute in ("best_config", "warmup", "__name__", "__doc__", "launch"):
            return ""
        return f"attribute {attribute} of the function {function}"

    def constant(self, node: ast.Constant) -> Iterator[_Note]:
        if isinstance(node.value, bytes) and len(node.value) > 64:
            yield node, "bytes in the source: write kernels as text"

    def call(self, node: ast.Call) -> Iterator[_Note]:
        self._note_addresses(node)
        function = node.func
        if isinstance(function, ast.Name):
            if function.id not in self._reading.modules and function.id in _CALLS:
                note = _CALLS[function.id](self, node)
                if note and self._is_free(function):
                    yield node, note
        elif isinstance(function, ast.Attribute) and function.attr == "data_ptr" and id(node) not in self._addresses:
            yield node, "an address that is kept: give data_ptr() straight to the launch"
        elif self._reading.dotted(function) == "os.makedirs" and not _exists_ok(node):
            yield node, "os.makedirs without exist_ok=True tells what was there before"

    def _note_addresses(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in plain.CONTAINER_METHODS:
            return
        if isinstance(function, ast.Name) and function.id in _PYTHONS and function.id != "int":
            return
        waiting: list[ast.AST] = [*node.args, *(item.value for item in node.keywords)]
        while waiting:
            item = waiting.pop()
            self._reading.spend()
            if isinstance(item, ast.Tuple | ast.List):
                waiting += item.elts
            elif isinstance(item, ast.BinOp):
                waiting += [item.left, item.right]
            elif isinstance(item, ast.IfExp):
                waiting += [item.body, item.orelse]
            else:
                self._addresses.add(id(item))

    def operation(self, node: ast.BinOp) -> Iterator[_Note]:
        # Whether memory is aligned.
        if isinstance(node.op, ast.Mod | ast.BitAnd):
            self._addresses |= {id(node.left)}
            yield from ()

    def by_name(self, node: ast.Call) -> str:
        """`getattr` and `hasattr`."""
        if len(node.args) < 2:
            return ""
        name = self._name_of(node) if isinstance(node.func, ast.Name) and node.func.id == "getattr" else ""
        if name:
            return self._imported(name)
        attribute = self._reading.folded(node.args[1])
        root = node.args[0]
        is_own = isinstance(root, ast.Name) and (root.id in _FIRST_ARGUMENTS or root.id in self._classes)
        if attribute is None:
            prefix = _prefix(node.args[1]) if is_own else ""
            known = plain.REFUSED | plain.OWN_PRIVATE
            if prefix and not prefix.startswith("_") and not any(word.startswith(prefix) for word in known):
                return ""
            return "an attribute with a computed name: write it out"
        name = self._name_of(root)
        if name in plain.MODULES:
            # Whether a version of a library has something.
            is_told = attribute.startswith("_") and self._imported(f"{name}.{attribute}")
            return f"attribute {attribute} of {name}" if is_told else self._imported(name)
        return self._attribute(attribute, of_self=is_own)

    def next_of(self, node: ast.Call) -> str:
        of = node.args[0] if node.args else None
        while isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "iter" and of.args:
            of = of.args[0]
        is_usual = isinstance(of, ast.GeneratorExp) or (
            isinstance(of, ast.Call)
            and isinstance(of.func, ast.Attribute)
            and of.func.attr in ("parameters", "buffers", "values", "keys")
        )
        return "" if is_usual else "next of what counts calls"

    def type_of(self, node: ast.Call) -> str:
        return "" if len(node.args) == 1 and not node.keywords else "a class made by type"

    def printed(self, node: ast.Call) -> str:
        return "print to a file" if any(item.arg in ("file", None) for item in node.keywords) else ""

    # Statements

    def imports(self, node: ast.Import) -> Iterator[_Note]:
        for alias in node.names:
            note = self._imported(alias.name)
            if note:
                yield node, f"import of {note}"

    def imports_from(self, node: ast.ImportFrom) -> Iterator[_Note]:
        if node.level or node.module is None:
            yield node, "a relative import: a candidate is one file"
            return
        for alias in node.names:
            note = (
                f"* of {node.module}: name what is needed"
                if alias.name == "*"
                else self._imported(f"{node.module}.{alias.name}")
            )
            if note:
                yield node, f"import of {note}"
                return

    def function(self, node: ast.FunctionDef) -> Iterator[_Note]:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            is_kept = isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call)
            if is_kept and node.name == "forward":
                yield node, f"a default of {node.name} that lasts from call to call: write None"

    def class_(self, node: ast.ClassDef) -> Iterator[_Note]:
        for base in node.bases:
            note = self._base(base)
            if note:
                yield node, f"class {node.name}: {note}"
        for item in node.keywords:
            yield node, f"class {node.name} with {item.arg or 'keywords'}: derive from nn.Module"
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                yield from self._method(part, node)

    def _base(self, base: ast.expr) -> str:
        if isinstance(base, ast.Name) and (base.id in self._classes or base.id == "object"):
            return ""
        name = self._name_of(base)
        is_layer = name.startswith("torch.nn.") and name.rpartition(".")[2] not in ("Parameter", "Buffer")
        if is_layer or name in _BASES:
            return self._imported(name)
        return f"base {ast.unparse(base)[:60]}: derive from nn.Module or torch.autograd.Function"

    def _method(self, node: ast.FunctionDef, of: ast.ClassDef) -> Iterator[_Note]:
        name = node.name
        if name.startswith("__") and name.endswith("__"):
            if name not in plain.SPECIAL_METHODS and not (name == "__repr__" and of.bases):
                yield node, f"special method {name} of {of.name}: call a plain method"
        elif name in plain.OWN_PRIVATE or (name in plain.METHODS_OF_OTHERS and of.bases):
            yield node, f"{of.name} has its own {name}, which others call"

    def global_(self, node: ast.Global) -> Iterator[_Note]:
        for name in node.names:
            if name in _PYTHONS or name in self._reading.modules:
                yield node, f"global {name}"

    def delete(self, node: ast.Delete) -> Iterator[_Note]:
        for target in node.targets:
            is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            if isinstance(target, ast.Attribute) and not (is_own and ast.unparse(target.value) == "self"):
                yield node, "del of an attribute"

    def _stored(self, node: ast.Attribute, name: str) -> str:
        """What is wrong with changing an attribute, or empty text."""
        if name:
            if name.startswith("torch.backends."):
                return self._imported(name)
            return f"assignment to {name}: what is imported is not the candidate's to change"
        attribute, root = node.attr, node.value
        if isinstance(root, ast.Name) and root.id in self._classes | {"cls"}:
            is_method = attribute in self._methods or attribute in plain.METHODS_OF_OTHERS | plain.OWN_PRIVATE
            return f"assignment to {root.id}.{attribute}" if is_method or attribute.startswith("__") else ""
        if attribute.startswith("__") or attribute in plain.OWN_PRIVATE or attribute in plain.REFUSED:
            return f"assignment to attribute {attribute}"
        if isinstance(root, ast.Name) and root.id in _FIRST_ARGUMENTS:
            is_method = attribute in plain.METHODS_OF_OTHERS | self._methods | {"forward", "src", "_src"}
            return f"assignment to {root.id}.{attribute}: write a method" if is_method else ""
        of_parameter = attribute == "data" and isinstance(root, ast.Attribute) and root.attr in ("weight", "bias")
        if attribute in plain.STORED_ANYWHERE or of_parameter:
            return ""
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name) and root.id == "self" and attribute in plain.STORED_BELOW_SELF:
            return ""
        return f"assignment to attribute {attribute} of another object: keep it in self or in a variable"

    def subscript(self, node: ast.Subscript) -> Iterator[_Note]:
        if self._reading.dotted(node.value) == "os.environ":
            key = self._reading.folded(node.slice)
            if key is None or not plain.ENVIRONMENT.fullmatch(key):
                yield node, f"os.environ[{key!r}] is no setting of a build"

    def assignment(self, node: ast.Assign) -> Iterator[_Note]:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and self._reading.folded(target.slice) in ("CC", "CXX"):
                value = self._reading.folded(node.value)
                if self._reading.dotted(target.value) == "os.environ" and not _COMPILERS.fullmatch(value or ""):
                    yield node, "another compiler"


_CALLS = {
    "getattr": _File.by_name,
    "hasattr": _File.by_name,
    "next": _File.next_of,
    "type": _File.type_of,
    "print": _File.printed,
}
_BASES = (
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "typing.NamedTuple",
    "enum.Enum",
    "enum.IntEnum",
)
_LOOKS = {
    ast.Name: _File.name,
    ast.Attribute: _File.attribute,
    ast.Constant: _File.constant,
    ast.Call: _File.call,
    ast.BinOp: _File.operation,
    ast.Import: _File.imports,
    ast.ImportFrom: _File.imports_from,
    ast.FunctionDef: _File.function,
    ast.ClassDef: _File.class_,
    ast.Global: _File.global_,
    ast.Delete: _File.delete,
    ast.Subscript: _File.subscript,
    ast.Assign: _File.assignment,
}


def _bound_attributes(reading: Reading) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that the file gives to objects, and what stands in the bodies of its classes."""
    bound: set[str] = set()
    fields: set[str] = set()
    for node in reading.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, _FUNCTIONS):
                    fields.add(part.name)
                for target in part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]:
                    if isinstance(target, ast.Name):
                        fields.add(target.id)
    return frozenset(bound | fields), frozenset(fields)


def _around(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Decorators and annotations, which are evaluated where the function stands."""
    yield from function.decorator_list
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    yield from (item.annotation for item in every if item is not None and item.annotation is not None)
    if function.returns is not None:
        yield function.returns


def _prefix(node: ast.AST) -> str:
    """Constant text that a computed text begins with."""
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return str(node.values[0].value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Constant):
        return str(node.left.value)
    return ""


def _exists_ok(node: ast.Call) -> bool:
    return any(
        item.arg == "exist_ok" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in node.keywords
    )
