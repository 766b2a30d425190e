"""Free variables of a function, and the order of traversal."""

from __future__ import annotations

import ast

import pytest

from kernelrl_sources.reachability import SourceIndex, free_names
from kernelrl_sources.syntax import walk

SOURCE = """\
@decorated
def f(x: annotated, g=g, *, h=1) -> annotated:
    y = [a for a in a if b]
    z = (lambda c: c + d)(c)
    def i(j): return j + k
    if (w := x): pass
    return [q := v for v in x], q, j, w, l.load(x), y, z, v
"""


def test_free_names_are_those_that_no_inner_scope_binds() -> None:
    function = ast.parse(SOURCE).body[0]
    free = free_names(function)
    found = [(node.lineno, node.id) for node in ast.walk(function) if isinstance(node, ast.Name) and id(node) in free]
    assert sorted(found) == [(2, "g"), (3, "a"), (3, "b"), (4, "c"), (4, "d"), (5, "k"), (7, "j"), (7, "l"), (7, "v")]


def test_walk_visits_all_nodes_except_contexts_and_operators_in_the_order_of_ast() -> None:
    tree = ast.parse(SOURCE + "{**a, b: -c and d < e}\nmatch x:\n    case [1, *y] | {'k': None, **z}: del x\n")
    left_out = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    assert list(walk(tree)) == [node for node in ast.walk(tree) if not isinstance(node, left_out)]


@pytest.mark.parametrize(
    "model", ["class ModelNew(Norm): pass", "ModelNew = Norm", "class ModelNew(Other, Norm): pass"]
)
def test_forward_may_be_that_of_another_class(model: str) -> None:
    source = f"class Norm(Base):\n    def forward(self, x): return launch(x)\ndef launch(x): return x\n{model}\n"
    reached = SourceIndex(ast.parse(source)).reached()
    assert [node.name for node in reached if isinstance(node, ast.FunctionDef)] == ["forward", "launch"]
