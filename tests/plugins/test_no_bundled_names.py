"""The core names no bundled component: components declare what they are defaults for."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import default_rules, evaluator_rules

ROOT = Path(__file__).parents[2]
CORE = ROOT / "kernelrl_core"
TABLE = CORE / "plugins/known_distributions.json"

WORDS = {
    "advantages", "bench", "check", "checkers", "compile", "correctness", "coverage", "dataset", "directory", "distill",
    "effects", "eval", "export", "feedback", "format", "index", "length", "minimal", "none", "policies", "profile",
    "protocol", "raw", "replay", "report", "retrievers", "rewards", "sample", "sizes", "speedup", "stress", "tasks",
    "thinking", "value", "view",
}  # fmt: skip
"""Names of components that the core uses as words of its own: kinds, fields, metrics, phases, settings."""

ALLOWED: dict[str, dict[str, str]] = {
    "cli/env.py": dict.fromkeys(("openai", "tilelang", "tinker", "torch", "triton"), "packages, for a bug report"),
    "prompts/extraction.py": dict.fromkeys(("cpp", "cuda", "hip", "triton"), "tags of code fences in replies"),
    "prompts/templates.py": dict.fromkeys(("kernelbench", "kevin"), "prompt templates, named after their papers"),
    "tasks/leaks.py": {"kernelbench": "the data set whose tasks other systems name by level and number"},
    "types/evaluations.py": {"kernelbench": "the measurement method of KernelBench"},
}
"""File -> names that it may use, each with what the name means there."""


def bundled_names() -> frozenset[str]:
    """Components, rules, plugins and recipes of this workspace."""
    components: dict[str, dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))["components"]
    names = {name for kind in components.values() for name in kind}
    names |= {distribution for kind in components.values() for distribution in kind.values()}
    names |= {path.stem for path in ROOT.glob("recipes/*.yaml")}
    known = registry()
    for checker in known.components("checkers"):
        names |= {rule.id for rule in default_rules(known, known.label("checkers", checker))}
    for evaluator in known.components("evaluators"):
        names |= {rule.id for rule in evaluator_rules(known, known.label("evaluators", evaluator))}
    return frozenset(names - WORDS)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and value of each string literal that is no docstring."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_a_literal_is_found_and_a_docstring_is_not() -> None:
    assert list(literals('"""triton"""\nx = ["triton", 1]\n')) == [(2, "triton")]


@pytest.mark.parametrize("name", ["triton", "local", "cpp", "kernelbench", "smoke", "no_kernel", "excessive_speedup"])
def test_the_names_of_components_recipes_and_rules_are_known(name: str) -> None:
    assert name in bundled_names()


def test_no_literal_of_the_core_is_the_name_of_a_bundled_component() -> None:
    names = bundled_names()
    found = []
    for path in sorted(CORE.rglob("*.py")):
        file = path.relative_to(CORE).as_posix()
        allowed = ALLOWED.get(file, {})
        for line, value in literals(path.read_text(encoding="utf-8")):
            if value in names and value not in allowed:
                found.append(f"{file}:{line}: {value!r}")
    assert found == [], "declare it with the component (Component.default, Rule.stated, …)"
