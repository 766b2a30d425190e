"""The graph of a reference: spellings that compute the same have one graph, whatever Python constructs they use."""

from __future__ import annotations

import pytest

from kernelrl_sources.dataflow.evaluation import result_of
from kernelrl_sources.dataflow.graph import nodes_of

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport math\n"


def reference(forward: str, *, init: str = "pass", parameters: str = "x", before: str = "", after: str = "") -> str:
    """A reference. Lines of `forward` and `init` are separated by line feeds."""
    body = "\n".join(f"        {line}" for line in forward.strip("\n").split("\n"))
    made = "\n".join(f"        {line}" for line in init.strip("\n").split("\n"))
    return (
        f"{HEAD}{before}\nclass Model(nn.Module):\n    def __init__(self, width=8, act='relu'):\n"
        f"        super().__init__()\n{made}\n    def forward(self, {parameters}):\n{body}\n{after}\n"
    )


def digest(source: str) -> str:
    result = result_of(source)
    assert result is not None, source
    return result.digest


SIN_COS = reference("return torch.cos(torch.sin(x))")
BLOCK = "class Block(nn.Module):\n    def forward(self, x):\n        return torch.cos(x)\n"
MIXIN = "class Base(nn.Module):\n    scale = 2\n    def step(self, x):\n        return torch.sin(x)\n"

SAME = {
    # statements
    "augmented assignment": ("x += y\nreturn x", "return x + y", {"parameters": "x, y"}),
    "annotated assignment": ("z: torch.Tensor = torch.sin(x)\nreturn z", "return torch.sin(x)", {}),
    "unpacked tuple": ("a, b = torch.sin(x), torch.cos(x)\nreturn a - b", "return torch.sin(x) - torch.cos(x)", {}),
    "starred target": ("a, *b = [torch.sin(x), 1]\nreturn a", "return torch.sin(x)", {}),
    "in-place method": ("x.sin_()\nreturn x", "return torch.sin(x)", {}),
    "inner function": ("def f(z):\n    return torch.sin(z)\nreturn f(x)", "return torch.sin(x)", {}),
    "lambda": ("f = lambda z: torch.sin(z)\nreturn f(x)", "return torch.sin(x)", {}),
    "with block": ("with torch.no_grad():\n    x = torch.sin(x)\nreturn x", "return torch.sin(x)", {}),
    "return in a with block": ("with torch.no_grad():\n    return torch.sin(x)", "return torch.sin(x)", {}),
    "try block": ("try:\n    return torch.sin(x)\nexcept ValueError:\n    return x", "return torch.sin(x)", {}),
    "walrus": ("return (y := torch.sin(x)) * y", "y = torch.sin(x)\nreturn y * y", {}),
    "known condition": ("if True:\n    return torch.sin(x)\nreturn x", "return torch.sin(x)", {}),
    "known condition, else": ("if not self:\n    return x\nelse:\n    return torch.sin(x)", "return torch.sin(x)", {}),
    "a default that is None": (
        "if bias is not None:\n    x = x + bias\nreturn torch.sin(x)",
        "return torch.sin(x)",
        {"parameters": "x, bias=None"},
    ),
    "a text in a condition": (
        "if self.act == 'relu':\n    return torch.relu(x)\nreturn torch.tanh(x)",
        "return torch.relu(x)",
        {"init": "self.act = act"},
    ),
    "equal branches": ("if x.shape[0] > 4:\n    return torch.sin(x)\nreturn torch.sin(x)", "return torch.sin(x)", {}),
    "branches that assign": (
        "if x.size(0) > 4:\n    y = torch.sin(x)\nelse:\n    y = torch.cos(x)\nreturn y",
        "return torch.sin(x) if x.size(0) > 4 else torch.cos(x)",
        {},
    ),
    "an early return": (
        "if x.size(0) > 4:\n    return torch.sin(x)\nreturn torch.cos(x)",
        "return torch.sin(x) if x.size(0) > 4 else torch.cos(x)",
        {},
    ),
    "a late return": (
        "if x.size(0) > 4:\n    x = torch.sin(x)\nelse:\n    return torch.cos(x)\nreturn x",
        "return torch.sin(x) if x.size(0) > 4 else torch.cos(x)",
        {},
    ),
    # expressions
    "conditional with a known test": ("return torch.sin(x) if 'a' else x", "return torch.sin(x)", {}),
    "boolean operators": ("return torch.sin(x) if True and not False else x", "return torch.sin(x)", {}),
    "or": ("return torch.sin(x) if None or 'yes' else x", "return torch.sin(x)", {}),
    "minus": ("return -x * (+x)", "return torch.neg(x) * x", {}),
    "comparison of tensors": ("return (x >= y) * x", "return torch.le(y, x) * x", {"parameters": "x, y"}),
    "transposed attribute": ("return x.T @ x", "return torch.matmul(x.t(), x)", {}),
    "a slice": ("return torch.sin(x[:, 1:4])", "return torch.sin(x[:, 2:3])", {}),
    "an index that is a tensor": ("return x[y]", "z = x[y]\nreturn z", {"parameters": "x, y"}),
    "facts about a tensor are numbers": ("return x.reshape(x.shape[0], -1) / x.numel()", "return x.view(4, 9) / 3", {}),
    "plain arithmetic": ("return x * (2 ** 3 + math.sqrt(7))", "return x * 5", {}),
    "a list of a comprehension": (
        "return torch.cat([f(x) for f in (torch.sin, torch.cos)])",
        "return torch.cat([torch.sin(x), torch.cos(x)])",
        {},
    ),
    "a dictionary of tensors": (
        "d = {'a': torch.sin(x)}\nd['a'] = torch.cos(d['a'])\nreturn d['a']",
        "return torch.cos(torch.sin(x))",
        {},
    ),
    "items of a list": ("l = [x, x]\nl[-1] = torch.sin(x)\nreturn l[1]", "return torch.sin(x)", {}),
    "list methods": (
        "l = []\nl.append(x)\nl.extend([torch.sin(x)])\nl.insert(0, torch.cos(x))\nreturn torch.cat(l)",
        "return torch.cat([torch.cos(x), x, torch.sin(x)])",
        {},
    ),
    "joined lists": ("return torch.cat([x] + [torch.sin(x)])", "return torch.cat([x, torch.sin(x)])", {}),
    "starred arguments": ("p = (x, torch.sin(x))\nreturn torch.add(*p)", "return x + torch.sin(x)", {}),
    "keyword arguments from a dictionary": (
        "k = dict(other=torch.sin(x))\nreturn torch.sub(x, **k)",
        "return x - torch.sin(x)",
        {},
    ),
    "getattr": ("return getattr(self, 'a')(x)", "return torch.sin(x)", {"init": "self.a = torch.sin"}),
    # functions
    "a helper with defaults": (
        "return h(x)",
        "return torch.sin(x) + torch.cos(x)",
        {"before": "def h(a, f=torch.sin, *, g=torch.cos):\n    return f(a) + g(a)\n"},
    ),
    "a helper with variable arguments": (
        "return h(x, torch.sin(x), k=torch.cos(x))",
        "return torch.stack([x, torch.sin(x), torch.cos(x)])",
        {"before": "def h(*a, **k):\n    return torch.stack([*a, k['k']])\n"},
    ),
    "a function without a result": (
        "h(x)\nreturn torch.sin(x)",
        "return torch.sin(x)",
        {"before": "def h(a):\n    print(a)\n"},
    ),
    # modules
    "module list by index": (
        "return self.l[1](self.l[0](x))",
        "return torch.relu(self.a(x))",
        {"init": "self.l = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])\nself.a = nn.Linear(4, 4)"},
    ),
    "sequence by index": (
        "return self.s[0](x)",
        "return self.a(x)",
        {"init": "self.s = nn.Sequential(nn.Linear(4, 4), nn.ReLU())\nself.a = nn.Linear(4, 4)"},
    ),
    "module dictionary": (
        "return self.d['a'](x)",
        "return torch.relu(x)",
        {"init": "self.d = nn.ModuleDict({'a': nn.ReLU()})"},
    ),
    "ordered dictionary": (
        "return self.s(x)",
        "return torch.relu(x)",
        {"init": "from collections import OrderedDict\nself.s = nn.Sequential(OrderedDict([('a', nn.ReLU())]))"},
    ),
    "appended modules": (
        "for f in self.l:\n    x = f(x)\nreturn x",
        "return torch.relu(torch.sigmoid(x))",
        {"init": "self.l = nn.ModuleList()\nself.l.append(nn.Sigmoid())\nself.l.append(nn.ReLU())"},
    ),
    "zip and enumerate": (
        "for i, (f, g) in enumerate(zip(self.l, self.m)):\n    x = g(f(x))\nreturn x",
        "return torch.relu(torch.sigmoid(x))",
        {"init": "self.l = nn.ModuleList([nn.Sigmoid()])\nself.m = nn.ModuleList([nn.ReLU()])"},
    ),
    "values of a dictionary": (
        "for f in self.d.values():\n    x = f(x)\nreturn x",
        "return torch.relu(x)",
        {"init": "self.d = nn.ModuleDict({'a': nn.ReLU()})"},
    ),
    "items of a dictionary": (
        "for _, f in self.d.items():\n    x = f(x)\nreturn x",
        "return torch.relu(x)",
        {"init": "self.d = nn.ModuleDict({'a': nn.ReLU()})"},
    ),
    "reversed modules": (
        "for f in reversed(self.l):\n    x = f(x)\nreturn x",
        "return torch.relu(torch.sigmoid(x))",
        {"init": "self.l = nn.ModuleList([nn.ReLU(), nn.Sigmoid()])"},
    ),
    "identity": ("return self.i(torch.sin(x))", "return torch.sin(x)", {"init": "self.i = nn.Identity()"}),
    "a module of its own": ("return self.b(x)", "return torch.cos(x)", {"init": "self.b = Block()", "before": BLOCK}),
    "forward by name": (
        "return self.b.forward(x)",
        "return torch.cos(x)",
        {"init": "self.b = Block()", "before": BLOCK},
    ),
    "setattr and add_module": (
        "return self.c(self.b(x))",
        "return torch.cos(torch.cos(x))",
        {"init": "setattr(self, 'b', Block())\nself.add_module('c', Block())", "before": BLOCK},
    ),
    "a method, a property and a class attribute": (
        "return self.g(x) * self.factor",
        "return torch.sin(x) * 3",
        {
            "after": "    def g(self, x):\n        return torch.sin(x)\n"
            "    @property\n    def factor(self):\n        return 2\n"
        },
    ),
    "a static method": (
        "return self.g(x)",
        "return torch.sin(x)",
        {"after": "    @staticmethod\n    def g(x):\n        return torch.sin(x)\n"},
    ),
    "a checkpointed module": (
        "return torch.utils.checkpoint.checkpoint(self.b, x)",
        "return torch.cos(x)",
        {"init": "self.b = Block()", "before": BLOCK},
    ),
    "a function of autograd": (
        "return Sin.apply(x)",
        "return torch.sin(x)",
        {
            "before": "class Sin(torch.autograd.Function):\n    @staticmethod\n"
            "    def forward(ctx, x):\n        return torch.sin(x)\n"
        },
    ),
    "buffers are parameters": (
        "return x * self.a + self.b",
        "return x * self.c + self.c",
        {
            "init": "self.register_buffer('a', nn.Parameter(torch.ones(3)))\n"
            "self.b = nn.Parameter(torch.ones(3))\nself.c = nn.Parameter(torch.ones(3))"
        },
    ),
    "a loop is evaluated once": (
        "for i in range(3):\n    x = torch.sin(x)\nreturn x",
        "for i in range(7):\n    x = torch.sin(x)\nreturn x",
        {},
    ),
    "a while loop": (
        "while x.sum() > 0:\n    x = torch.sin(x)\nreturn x",
        "for i in range(7):\n    x = torch.sin(x)\nreturn x",
        {},
    ),
    "repeated modules": (
        "return self.s(x)",
        "return self.t(x)",
        {"init": "self.s = nn.Sequential(*[nn.ReLU() for _ in range(3)])\nself.t = nn.Sequential(*([nn.ReLU()] * 4))"},
    ),
    "modules that a condition selects": (
        "return self.a(x)",
        "return self.b(x)",
        {"init": "self.a = nn.ReLU() if width > 4 else nn.Tanh()\nself.b = nn.ReLU() if width > 9 else nn.Tanh()"},
    ),
    "an attribute that a condition sets": (
        "return self.a(x)",
        "return self.b(x)",
        {
            "init": "if width > 4:\n    self.a = nn.ReLU()\nelse:\n    self.a = nn.Tanh()\n"
            "self.b = nn.ReLU() if width > 9 else nn.Tanh()"
        },
    ),
}


@pytest.mark.parametrize(("first", "second", "parts"), SAME.values(), ids=SAME)
def test_both_spellings_have_one_graph(first: str, second: str, parts: dict[str, str]) -> None:
    assert digest(reference(first, **parts)) == digest(reference(second, **parts))


DIFFERENT = {
    "an item that is set": ("x[0] = y\nreturn torch.sin(x)", "return torch.sin(x)", {"parameters": "x, y"}),
    "items of a result": ("a, b = torch.max(x, 1)\nreturn a", "a, b = torch.max(x, 1)\nreturn b", {}),
    "a repeated loop": ("for i in range(3):\n    x = torch.sin(x)\nreturn x", "return torch.sin(x)", {}),
    "branches in another order": (
        "return torch.sin(x) if x.size(0) > 4 else torch.cos(x)",
        "return torch.cos(x) if x.size(0) > 4 else torch.sin(x)",
        {},
    ),
    "bitwise operators": ("return x & y", "return x ^ y", {"parameters": "x, y"}),
    "inverted": ("return ~x & y", "return x & y", {"parameters": "x, y"}),
    "one output more": ("return torch.sin(x)", "return torch.sin(x), x", {}),
    "another layer": (
        "return self.a(x)",
        "return self.b(x)",
        {"init": "self.a = nn.Linear(4, 4)\nself.b = nn.Conv1d(4, 4, 1)"},
    ),
    "weights of a layer": (
        "return F.linear(x, self.a.weight)",
        "return self.a(x)",
        {"init": "self.a = nn.Linear(4, 4)"},
    ),
}


@pytest.mark.parametrize(("first", "second", "parts"), DIFFERENT.values(), ids=DIFFERENT)
def test_another_computation_has_another_graph(first: str, second: str, parts: dict[str, str]) -> None:
    assert digest(reference(first, **parts)) != digest(reference(second, **parts))


def test_inherited_methods_and_attributes_of_the_class_are_found() -> None:
    derived = (
        f"{HEAD}{MIXIN}\nclass Model(Base):\n    def step(self, x):\n        return torch.cos(super().step(x))\n"
        "    def forward(self, x):\n        return self.step(x) * self.scale\n"
    )
    assert digest(derived) == digest(reference("return torch.cos(torch.sin(x)) * 3"))


def test_the_entry_is_the_module_that_no_other_one_uses() -> None:
    used = "class Used(nn.Module):\n    def forward(self, x):\n        return torch.sin(x)\n"
    last = "class Whole(nn.Module):\n    def __init__(self):\n        self.u = Used()\n    def forward(self, x):\n"
    assert digest(f"{HEAD}{used}{last}        return torch.cos(self.u(x))\n") == digest(SIN_COS)


def test_the_arguments_of_init_are_those_of_get_init_inputs() -> None:
    body, init = "return self.a(x) if self.use else x", "self.a, self.use = torch.sin, act"
    for given in ("[4, False]", "[[4], {'act': False}]"):
        source = reference(body, init=init, after=f"def get_init_inputs():\n    return {given}\n")
        # Without an operator, the reference has no graph.
        assert result_of(source) is None
    source = reference(body, init=init, after="def get_init_inputs():\n    return [4, True]\n")
    assert digest(source) == digest(reference("return torch.sin(x)"))


def test_code_below_the_main_guard_is_ignored() -> None:
    guarded = f"{SIN_COS}\nif __name__ == '__main__':\n    Model = None\n"
    assert digest(guarded) == digest(SIN_COS)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def f(:",
        "x = 1",
        reference("return x"),
        reference("return 3"),
        reference("return self.forward(x)"),
        f"{HEAD}class Model(nn.Module):\n    forward = torch.sin\n",
        "x = 1\n" * 2_000_000,
        reference("\n".join(["x = torch.sin(x)"] * 30_000)),
    ],
    ids=[
        "empty",
        "no Python",
        "no module",
        "no operator",
        "a number",
        "recursion",
        "no function",
        "long",
        "many steps",
    ],
)
def test_a_source_without_a_graph_has_none(source: str) -> None:
    assert result_of(source) is None


def test_each_node_is_listed_once() -> None:
    result = result_of(reference("y = torch.sin(x)\nreturn y * y"))
    assert result is not None
    assert sorted(node.label for node in nodes_of(result)) == ["input", "mul", "sin"]
