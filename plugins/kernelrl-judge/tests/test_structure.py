"""Structure of the judge, of the build library and of the sandbox: names of classes, and imports between packages.

A failure lists file and line of each place.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import attrs
import pytest

import kernelrl_build
import kernelrl_judge
import kernelrl_sandbox

JUDGE_SIDE = ("behaviour", "client", "judge", "timing", "probes", "peer", "task", "device")
"""Packages of `kernelrl_judge` that the runner must not import."""
NEUTRAL = ("backend", "timed_calls", "replay", "protocol", "findings", "limits")
"""Modules and packages of `kernelrl_judge` below judge and runner."""
VAGUE_NAMES = ("Bench", "Case", "Endings", "Unmeasured")


@attrs.frozen
class SourceFile:
    """A parsed module."""

    name: str
    """Dotted name."""
    path: Path
    """Its file."""
    tree: ast.Module
    """Its syntax tree."""

    def place(self, node: ast.AST) -> str:
        """File and line of a node."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"

    def within(self, packages: Sequence[str]) -> bool:
        return any(self.name == package or self.name.startswith(f"{package}.") for package in packages)


@functools.cache
def source_files() -> tuple[SourceFile, ...]:
    return tuple(found for package in (kernelrl_build, kernelrl_judge, kernelrl_sandbox) for found in files_of(package))


def files_of(package: ModuleType) -> Iterator[SourceFile]:
    assert package.__file__ is not None
    root = Path(package.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = [package.__name__, *path.relative_to(root).with_suffix("").parts]
        name = ".".join(parts).removesuffix(".__init__")
        yield SourceFile(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def imported_names(file: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    """Each import statement or call of `import_module`, at any depth, with the dotted name that it imports."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            parent = absolute_parent(file, node)
            for alias in node.names:
                yield node, f"{parent}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant):
                    yield node, str(argument.value)


def absolute_parent(file: SourceFile, node: ast.ImportFrom) -> str:
    """Module that a `from` statement names, also for a relative import."""
    if not node.level:
        return node.module or ""
    is_package = file.path.name == "__init__.py"
    parents = file.name.split(".")
    kept = parents[: len(parents) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def forbidden_imports(importers: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Places in `importers` that import one of `targets` or a part of it."""
    return [
        f"{file.place(node)} imports {name}"
        for file in source_files()
        if file.within(importers)
        for node, name in imported_names(file)
        if any(name == target or name.startswith(f"{target}.") for target in targets)
    ]


def of_judge(names: Sequence[str]) -> list[str]:
    return [f"kernelrl_judge.{name}" for name in names]


def report(problems: Sequence[str]) -> str:
    return "\n" + "\n".join(problems)


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in source_files():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(file.place(node))
    repeated = [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]
    assert not repeated, report(repeated)


def test_no_class_has_a_vague_name() -> None:
    vague = [
        f"{file.place(node)} class {node.name}"
        for file in source_files()
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_") in VAGUE_NAMES
    ]
    assert not vague, report(vague)


@pytest.mark.parametrize(
    ("importers", "targets"),
    [
        (of_judge(JUDGE_SIDE), of_judge(["runner"])),
        (of_judge(["runner"]), of_judge(JUDGE_SIDE)),
        (of_judge(NEUTRAL), of_judge([*JUDGE_SIDE, "runner"])),
        (["kernelrl_build", "kernelrl_sandbox"], ["kernelrl_judge"]),
        (["kernelrl_sandbox"], ["kernelrl_build"]),
    ],
    ids=["judge to runner", "runner to judge", "neutral to both", "libraries to judge", "sandbox to build"],
)
def test_a_package_does_not_import_from_another_side(importers: Sequence[str], targets: Sequence[str]) -> None:
    found = forbidden_imports(importers, targets)
    assert not found, report(found)


def test_every_package_of_the_judge_belongs_to_a_side() -> None:
    known = {"kernelrl_judge", *of_judge([*JUDGE_SIDE, *NEUTRAL, "runner"])}
    packages = {".".join(file.name.split(".")[:2]) for file in source_files() if file.within(["kernelrl_judge"])}
    assert packages == known


def test_facts_of_an_evaluation_are_in_no_mapping_named_profile() -> None:
    found = [
        f"{file.place(node)} {ast.unparse(node)}"
        for file in source_files()
        for node in ast.walk(file.tree)
        if is_profile(node) and is_mapping(node)
    ]
    assert not found, report(found)


def is_profile(node: ast.AST) -> bool:
    """Whether a node declares a parameter, variable or attribute `profile`."""
    if isinstance(node, ast.arg):
        return node.arg == "profile"
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target).rpartition(".")[2] == "profile"


def is_mapping(node: ast.AST) -> bool:
    annotation = getattr(node, "annotation", None)
    text = ast.unparse(annotation) if annotation is not None else ""
    return any(word in text for word in ("dict", "Mapping"))
