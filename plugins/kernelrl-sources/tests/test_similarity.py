"""Near duplicates of references: the differences that they ignore, and those that separate tasks."""

from __future__ import annotations

import ast
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrl_sources.similarity import (
    NearDuplicates,
    nearly_equal,
    normalised_source,
    structural_similarity,
    structure,
    token_structure,
)

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
TAIL = "\ndef get_inputs():\n    return [torch.randn(6, 50)]\n\ndef get_init_inputs():\n    return []\n"


def module(forward: str, init: str = "pass", parameters: str = "x") -> str:
    """A reference; `forward` and `init` are lines separated by semicolons."""
    body = "\n".join(f"        {line.strip()}" for line in forward.split(";"))
    made = "\n".join(f"        {line.strip()}" for line in init.split(";"))
    return (
        f"{HEAD}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n"
        f"    def forward(self, {parameters}):\n{body}\n{TAIL}"
    )


SOFTMAX = module("x = x - x.amax(dim=1, keepdim=True); x = torch.exp(x); return x / x.sum(dim=1, keepdim=True)")
CONV = module("return torch.relu(self.conv(x)) * 2.0", "self.conv = nn.Conv2d(3, 8, 5, padding=1)")
TWO = module("a = torch.sin(x); b = torch.cos(y); c = a * 3; return b + c", parameters="x, y")

EQUAL = {
    "names": module(
        "h = h - h.amax(dim=1, keepdim=True); e = torch.exp(h); return e / e.sum(dim=1, keepdim=True)", parameters="h"
    ),
    "one line": module("return (e := torch.exp(x - x.amax(dim=1, keepdim=True))) / e.sum(dim=1, keepdim=True)"),
    "axes by position": module("x = x - x.amax(1, keepdim=True); x = x.exp(); return x / x.sum(1, keepdim=True)"),
    "dead code": module(
        "z = torch.tanh(x); x = x - x.amax(dim=1, keepdim=True); x = torch.exp(x); print(z);"
        "return x / x.sum(dim=1, keepdim=True)"
    ),
    "copies": module(
        "x = x.contiguous(); x = x - x.amax(dim=1, keepdim=True); x = torch.exp(x).clone();"
        "return torch.div(x, x.sum(dim=1, keepdim=True))"
    ),
}


@pytest.mark.parametrize("other", EQUAL.values(), ids=EQUAL)
def test_equal_computations_have_one_structure(other: str) -> None:
    assert structure(other).digest == structure(SOFTMAX).digest
    assert structural_similarity(SOFTMAX, other) == 1.0
    assert nearly_equal(SOFTMAX, other) == "structure"


SAME = {
    "module and function": (
        module("return self.act(x)", "self.act = nn.LeakyReLU(0.1)"),
        module("return F.leaky_relu(x, negative_slope=0.2)"),
    ),
    "operator and function": (
        module("return x @ y", parameters="x, y"),
        module("return torch.mm(x, y)", parameters="x, y"),
    ),
    "order of a sum": (module("return x + torch.sin(x)"), module("return torch.sin(x) + x")),
    "sequence": (
        module("return self.net(x)", "self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())"),
        module("return F.relu(self.a(x))", "self.a = nn.Linear(5, 9)"),
    ),
    "list and loop": (
        module("for f in self.fs: x = f(x); return x", "self.fs = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])"),
        module("return torch.relu(self.a(x))", "self.a = nn.Linear(3, 3)"),
    ),
    "default of bias": (
        module("return self.a(x)", "self.a = nn.Linear(4, 4, bias=True)"),
        module("return self.a(x)", "self.a = nn.Linear(4, 4)"),
    ),
    "letters of an equation": (
        module("return torch.einsum('ij,jk->ik', x, y)", parameters="x, y"),
        module("return torch.einsum('ab, bc -> ac', x, y)", parameters="x, y"),
    ),
    "comparison": (module("return x > y", parameters="x, y"), module("return y < x", parameters="x, y")),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME)
def test_other_spellings_have_one_structure(first: str, second: str) -> None:
    assert nearly_equal(first, second) == "structure"


DIFFERENT = {
    "relu, gelu": (module("return F.relu(x)"), module("return F.gelu(x)")),
    "gelu, its approximation": (module("return F.gelu(x)"), module("return F.gelu(x, approximate='tanh')")),
    "add, mul": (module("return x + y", parameters="x, y"), module("return x * y", parameters="x, y")),
    "sum, mean": (module("return x.sum(dim=1)"), module("return x.mean(dim=1)")),
    "sum of rows, of all": (module("return x.sum(dim=1)"), module("return x.sum()")),
    "with and without bias": (CONV, CONV.replace("padding=1", "padding=1, bias=False")),
    "square, product": (module("return x * x - 1"), module("return x * y - 1", parameters="x, y")),
    "transposed left, right": (
        module("return torch.matmul(x.T, y)", parameters="x, y"),
        module("return torch.matmul(x, y.T)", parameters="x, y"),
    ),
    "operands exchanged": (module("return x - torch.sin(x)"), module("return torch.sin(x) - x")),
    "order of operators": (module("return torch.relu(torch.sin(x))"), module("return torch.sin(torch.relu(x))")),
    "one more operator": (module("return torch.sin(x)"), module("return torch.sin(x) + 1")),
    "keepdim": (module("return x.sum(dim=1)"), module("return x.sum(dim=1, keepdim=True)")),
}


@pytest.mark.parametrize(("first", "second"), DIFFERENT.values(), ids=DIFFERENT)
def test_another_operator_or_data_flow_is_no_near_duplicate(first: str, second: str) -> None:
    assert nearly_equal(first, second) is None
    assert structural_similarity(first, second) < 0.9


def test_the_similarity_counts_operators_and_operators_with_operands() -> None:
    # sin, mul, sin(input), mul(#,sin) and sin, add, sin(input), add(#,sin): 2 of 6 features are common.
    first, second = module("return torch.sin(x) * 2"), module("return torch.sin(x) + 2")
    assert sorted(structure(first).features)[2:] == ["sin", "sin(input)"]
    assert structural_similarity(first, second) == pytest.approx(2 / 6)
    # relu, gelu: nothing is common.
    assert structural_similarity(*DIFFERENT["relu, gelu"]) == 0.0
    # sub, sin, sin(input) are common; sub(input,sin) and sub(sin,input) are not: 3 of 5.
    assert structural_similarity(*DIFFERENT["operands exchanged"]) == pytest.approx(3 / 5)
    # A feature counts as often as it occurs: {sin: 2, sin(input), sin(sin)} and {sin, sin(input)}: 2 of 4.
    assert structural_similarity(module("return torch.sin(torch.sin(x))"), module("return torch.sin(x)")) == 0.5


def test_equal_operators_in_a_slightly_other_graph_are_similar() -> None:
    steps = "x = torch.sin(x); x = x + 1; x = torch.relu(x); x = x * 2;" * 6
    first = module(f"{steps} x = torch.exp(x); return x - y", parameters="x, y")
    second = module(f"{steps} x = torch.exp(x); return y - x", parameters="x, y")
    assert nearly_equal(first, second) == "similar"
    assert 0.9 <= structural_similarity(first, second) < 1


@pytest.mark.parametrize(
    "wrapper",
    [
        "class Model(nn.Module):\n    def __init__(self, *args):\n        super(Model, self).__init__()\n"
        "        self.inner = Inner(*args)\n    def forward(self, *args):\n        return self.inner(*args)\n",
        "class Model(Inner):\n    pass\n",
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = nn.Sequential(Inner())\n    def forward(self, value):\n        out = self.net(value)\n"
        "        return out\n",
    ],
    ids=["arguments passed on", "derived", "sequence"],
)
def test_a_wrapped_module_has_the_structure_of_the_module(wrapper: str) -> None:
    assert nearly_equal(CONV, CONV.replace("class Model", "class Inner") + "\n\n" + wrapper) == "structure"


def test_the_init_inputs_select_the_variant() -> None:
    source = (
        f"{HEAD}\nclass Model(nn.Module):\n    def __init__(self, n, bias=False):\n        super().__init__()\n"
        "        self.a = nn.Linear(n, n, bias=bias)\n    def forward(self, x):\n        return self.a(x)\n"
        "def get_inputs():\n    return [torch.randn(4, 4)]\ndef get_init_inputs():\n    return [GIVEN]\n"
    )
    plain = module("return self.a(x)", "self.a = nn.Linear(4, 4)")
    assert nearly_equal(source.replace("GIVEN", "8, True"), plain) == "structure"
    assert nearly_equal(source.replace("GIVEN", "8"), plain) is None


def test_a_parameter_without_an_input_is_an_input() -> None:
    first, second = module("return x + (y + y)", parameters="x, y"), module("return x + (y - y)", parameters="x, y")
    assert "return [torch.randn(6, 50)]" in first  # one input for two parameters
    assert nearly_equal(first, second) is None


def test_a_class_under_any_name_is_found() -> None:
    assert nearly_equal(CONV, CONV.replace("class Model", "class ConvReluNew")) == "structure"


# Properties, for references made of random operators

UNARY = ["relu", "sin", "exp", "tanh", "abs", "sigmoid"]
BINARY = ["add", "sub", "mul", "maximum"]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, str, int, int, float]]:
    """Statements `v[n] = OPERATOR(v[i], v[j])` or `OPERATOR(v[i]) * factor`; v0 and v1 are the inputs."""
    rows = []
    for n in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["unary", "binary", "scaled"]))
        name = draw(st.sampled_from(BINARY if kind == "binary" else UNARY))
        rows.append((kind, name, draw(st.integers(0, n + 1)), draw(st.integers(0, n + 1)), draw(st.floats(0.5, 9))))
    return rows


def source_of(
    rows: list[tuple[str, str, int, int, float]], names: list[str] | None = None, order: list[int] | None = None
) -> str:
    v = names or [f"v{i}" for i in range(len(rows) + 2)]
    lines = []
    for n, (kind, name, i, j, factor) in enumerate(rows):
        value = f"torch.{name}({v[i]}, {v[j]})" if kind == "binary" else f"torch.{name}({v[i]})"
        lines.append(f"{v[n + 2]} = {value}{f' * {factor}' if kind == 'scaled' else ''}")
    every = " + ".join(v[2:])  # every value reaches the result
    return module(
        "; ".join([*(lines[n] for n in order or range(len(rows))), f"return {every}"]), parameters=", ".join(v[:2])
    )


@settings(max_examples=50, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_renaming_formatting_order_and_constants_keep_the_structure(
    rows: list[tuple[str, str, int, int, float]], rng: random.Random
) -> None:
    names = [f"n{rng.randrange(10**6)}_{i}" for i in range(len(rows) + 2)]
    waiting, order = list(range(len(rows))), []
    while waiting:  # a random order in which each statement follows those that it uses
        ready = [n for n in waiting if all(k < 2 or k - 2 in order for k in _used(rows[n]))]
        order.append(rng.choice(ready))
        waiting.remove(order[-1])
    constants = [(kind, name, i, j, rng.uniform(10, 20)) for kind, name, i, j, _ in rows]
    other = ast.unparse(ast.parse(source_of(constants, names, order))).replace("    ", "\t")
    assert nearly_equal(source_of(rows), other) in ("source", "structure")


@settings(max_examples=50, deadline=None)
@given(programs(), st.data())
def test_another_operator_changes_the_structure(
    rows: list[tuple[str, str, int, int, float]], data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(rows) - 1))
    kind, name, *rest = rows[n]
    others = [other for other in (BINARY if kind == "binary" else UNARY) if other != name]
    changed = [*rows[:n], (kind, data.draw(st.sampled_from(others)), *rest), *rows[n + 1 :]]
    assert nearly_equal(source_of(rows), source_of(changed)) is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_compared(text: str) -> None:
    normalised_source(text)
    structure(text)
    assert nearly_equal(text, text) == "source"
    assert 0 <= structural_similarity(text, CONV) <= 1


def _used(row: tuple[str, str, int, int, float]) -> set[int]:
    return {row[2], row[3]} if row[0] == "binary" else {row[2]}


# Texts that are not analysed


def test_normalisation_removes_comments_docstrings_and_formatting() -> None:
    text = 'def f( a,b ):  # comment\n    """Doc."""\n    return g(a,\n        \'x\', )\n'
    assert normalised_source(text) == 'def f ( a , b ) : return g ( a , "x" )'


BROKEN = CONV + "\nclass ("


def test_a_source_that_does_not_parse_is_compared_by_tokens() -> None:
    assert not structure(BROKEN).parsed
    assert nearly_equal(BROKEN, BROKEN.replace("conv", "layer").replace("2.0", "7.5")) == "structure"
    assert nearly_equal(BROKEN, CONV) == "similar"
    assert nearly_equal(BROKEN, BROKEN.replace("relu", "gelu")) is None


def test_a_text_without_operators_equals_only_itself() -> None:
    assert nearly_equal("reference 1", "reference 2") is None
    assert token_structure("reference 1").operators == ()


@pytest.mark.parametrize(
    "source",
    ["", "x = (", "\0", "class Model: pass", "class Model:\n    def forward(self, x): return x\n"],
    ids=["empty", "broken", "null byte", "no forward", "no operator"],
)
def test_sources_without_data_flow_are_no_error(source: str) -> None:
    assert not structure(source).parsed
    assert nearly_equal(source, CONV) is None


@pytest.mark.parametrize(
    "forward",
    [
        "return self.forward(x)",
        "f = lambda f, x: f(f, x) + f(f, x); return f(f, x)",
        "x = [x]; x.append(x); return torch.cat(x)",
        f"return {'torch.sin(' * 150}x{')' * 150}",
        "for i in range(10**9): x = torch.sin(x); return x",
    ],
    ids=["recursive", "exponential", "cyclic", "deep", "long"],
)
def test_an_evaluation_is_bounded(forward: str) -> None:
    start_s = time.process_time()
    structure(module(forward))
    assert time.process_time() - start_s < 2


# The index


def test_the_index_finds_every_kind_of_duplicate() -> None:
    index = NearDuplicates([("softmax", SOFTMAX), ("conv", CONV), ("broken", BROKEN)])
    index.add("two", TWO)
    assert index.matches(SOFTMAX) == [("softmax", "source")]
    assert index.matches(EQUAL["names"]) == [("softmax", "structure")]
    assert index.matches(CONV) == [("conv", "source"), ("broken", "similar")]
    assert index.matches(BROKEN) == [("conv", "similar"), ("broken", "source")]
    assert index.matches(module("return F.gelu(x)")) == []


def test_a_search_among_1000_references_is_fast() -> None:
    rng = random.Random(0)
    rows = [[("unary", rng.choice(UNARY), n, 0, 1.0) for n in range(1, 12)] for _ in range(1000)]
    index = NearDuplicates((str(i), source_of(row)) for i, row in enumerate(rows))
    times = []
    for i, row in enumerate(rows[:50]):
        structure.cache_clear()
        start_s = time.process_time()
        found = index.matches(source_of(row))
        times.append(time.process_time() - start_s)
        assert str(i) in [id_ for id_, _ in found]
    assert sorted(times)[47] < 0.02  # the benchmark measures 5 ms; this machine may be busy
