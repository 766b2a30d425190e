"""Statements of a module: imports, definitions that are used, names of classes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence

from kernelrl_plugin_raicl.rewriting.pair import Unrewritable

__all__ = ["bound_names", "class_named", "reference_module", "rename_classes", "source_of"]
__all__ += ["used_definitions", "used_names"]

_PACKAGES = frozenset({"torch", "numpy", "triton", *sys.stdlib_module_names})
"""Packages that every machine with PyTorch has; a reference that uses another one cannot be executed."""
_MOCK = "_mock_config"
"""Name by which references of KernelBook construct an object with attributes."""
_IMPORTS = (ast.Import, ast.ImportFrom)


def reference_module(tree: ast.Module, entry: str) -> str:
    """The source of a reference whose class `entry` is called `Model`.

    Unused imports and statements under `if __name__` are removed.

    Raises:
        Unrewritable: there is no such class, a needed function is missing, or a used import is not available.
    """
    defined = {name for statement in tree.body for name in bound_names(statement)}
    if entry not in defined:
        raise Unrewritable("reference has no class with the name of the row", entry)
    for needed in ("get_inputs", "get_init_inputs"):
        if needed not in defined:
            raise Unrewritable(f"reference has no {needed}")
    tree = rename_classes(tree, {entry: "Model"})
    roots = [class_named(tree.body, "Model"), *_functions(tree.body, ("get_inputs", "get_init_inputs"))]
    return source_of(used_definitions(tree.body, roots))


def used_definitions(body: Sequence[ast.stmt], roots: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module that `roots` need, in their order: imports, definitions and assignments.

    Raises:
        Unrewritable: a needed import is not available everywhere.
    """
    needed = list(roots)
    names = {name for statement in needed for name in used_names(statement)}
    chosen = set(map(id, needed))
    while True:
        more = [
            statement
            for statement in body
            if id(statement) not in chosen and (_is_future(statement) or names & set(bound_names(statement)))
        ]
        if not more:
            break
        chosen |= set(map(id, more))
        names |= {name for statement in more if not isinstance(statement, _IMPORTS) for name in used_names(statement)}
    found = [_import_of(item, names) if isinstance(item, _IMPORTS) else item for item in body if id(item) in chosen]
    # Imports of several submodules of torch have become the same import.
    texts = [ast.dump(item) if isinstance(item, _IMPORTS) else "" for item in found]
    return [item for at, item in enumerate(found) if not texts[at] or texts[at] not in texts[:at]]


def rename_classes(tree: ast.Module, names: Mapping[str, str]) -> ast.Module:
    """The module with other names of classes. A class that has one of the new names gets an underscore.

    Raises:
        Unrewritable: a parameter or a function has one of the names.
    """
    taken = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} & set(names.values())
    mapping = {**{name: f"{name}_" for name in taken if name not in names}, **names}
    mapping = {old: new for old, new in mapping.items() if old != new}
    if not mapping:
        return tree
    affected = {*mapping, *mapping.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.keyword) and node.arg in affected:
            raise Unrewritable("name of the class is also a parameter", str(node.arg))
        if isinstance(node, ast.Name):
            node.id = mapping.get(node.id, node.id)
        elif isinstance(node, ast.ClassDef):
            node.name = mapping.get(node.name, node.name)
        elif isinstance(node, ast.FunctionDef) and node.name in affected:
            raise Unrewritable("name of the class is also a function", node.name)
    return tree


def class_named(body: Iterable[ast.stmt], name: str) -> ast.ClassDef:
    """The class with a name.

    Raises:
        Unrewritable: there is none.
    """
    for statement in body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement
    raise Unrewritable("no class with the name of the row", name)


def used_names(node: ast.AST) -> set[str]:
    """All names in a syntax tree."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def bound_names(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module binds."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=aliases):
            return [alias.asname or alias.name.partition(".")[0] for alias in aliases]
        case ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name for alias in aliases]
        case ast.Try() | ast.If() if not _is_main(statement):
            return [name for inner in [*statement.body, *statement.orelse] for name in bound_names(inner)]
    return []


def source_of(body: Iterable[ast.stmt]) -> str:
    """Source of statements, with two blank lines around definitions as in PEP 8."""
    text = ""
    before: ast.stmt | None = None
    for statement in body:
        is_block = isinstance(statement, ast.ClassDef | ast.FunctionDef)
        if before is not None:
            apart = is_block or isinstance(before, ast.ClassDef | ast.FunctionDef)
            grouped = isinstance(before, _IMPORTS) == isinstance(statement, _IMPORTS)
            if apart:
                text += "\n\n"
            elif not grouped:
                text += "\n"
        text += ast.unparse(ast.fix_missing_locations(statement)).strip("\n") + "\n"
        before = statement
    return text


def _functions(body: Iterable[ast.stmt], names: Sequence[str]) -> list[ast.stmt]:
    return [item for item in body if set(names) & set(bound_names(item)) and not isinstance(item, _IMPORTS)]


def _import_of(statement: ast.stmt, names: set[str]) -> ast.stmt:
    """An import with the names that are used."""
    if _is_future(statement):
        return statement
    if isinstance(statement, ast.Import):
        kept = [item for item in statement.names if (item.asname or item.name.partition(".")[0]) in names]
        foreign = [item.name for item in kept if item.name.partition(".")[0] not in _PACKAGES]
        found: ast.stmt = ast.Import([item if item.asname else ast.alias(_top(item.name)) for item in kept])
    else:
        assert isinstance(statement, ast.ImportFrom)
        kept = [item for item in statement.names if (item.asname or item.name) in names or item.name == "*"]
        if [item.name for item in kept] == [_MOCK]:
            return ast.ImportFrom("types", [ast.alias("SimpleNamespace", _MOCK)], 0)
        root = (statement.module or "").partition(".")[0]
        foreign = [] if root in _PACKAGES and not statement.level else [statement.module or "."]
        found = ast.ImportFrom(statement.module, kept, statement.level)
    if foreign:
        raise Unrewritable("uses a package other than torch and numpy", foreign[0])
    return found


def _top(name: str) -> str:
    # torch imports its submodules itself; other packages may not.
    return "torch" if name.startswith("torch.") else name


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in used_names(statement.test)
