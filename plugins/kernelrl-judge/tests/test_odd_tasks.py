"""Odd tasks: each is judged, or it is an error of the task in one line. Its copy as a candidate is never blamed."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import Outcome
from kernelrl_judge.client import worker


@attrs.frozen
class OddTask:
    """Lines of a task in KernelBench's format."""

    title: str
    forward: str = "return x * 2.0"
    inputs: str = "return [torch.randn(6, 5)]"
    init: str = "pass"
    arguments: str = "return []"
    head: str = ""
    names: str = "x"
    error: str = ""
    """What the error of the task says; empty: the task is judged."""
    incorrect: bool = False
    """Whether its copy cannot be right, because calls differ."""
    ends_judges: bool = False
    """Whether the task itself ends the process that runs it."""

    def source(self) -> str:
        body = "\n".join(f"        {line}" for line in self.forward.splitlines())
        inputs = "\n".join(f"    {line}" for line in self.inputs.splitlines())
        return f"""\
import os, sys, threading, warnings
import torch
import torch.nn as nn
{self.head}

class Model(nn.Module):
    def __init__(self, *args):
        super().__init__()
        {self.init}

    def forward(self, {self.names}):
{body}

def get_inputs():
{inputs}

def get_init_inputs():
    {self.arguments}
"""


JUDGED = (
    OddTask("prints much", "print('x' * 100_000, file=sys.stderr)\nprint('x' * 100_000)\nreturn x * 2.0"),
    OddTask("turns warnings into errors", head="warnings.simplefilter('error')"),
    OddTask("changes the default dtype", head="torch.set_default_dtype(torch.float64)"),
    OddTask("turns gradients off", head="torch.set_grad_enabled(False)"),
    OddTask("seeds each call", "torch.manual_seed(3)\nreturn x + torch.randn(5)"),
    OddTask("draws in each call", "return x + torch.randn(5)", incorrect=True),
    OddTask("drops elements", "return nn.functional.dropout(x)", incorrect=True),
    OddTask("keeps a list in its module", "seen.append(x)\nreturn x * 2.0", head="seen = []"),
    OddTask("returns its input", "return x"),
    OddTask("returns a view of its input", "return x.T[1:]"),
    OddTask("returns one tensor twice", "y = x * 2\nreturn y, y"),
    OddTask("returns an expanded tensor", "return x[:, :1].expand(6, 4)"),
    OddTask("changes its input", "x.add_(1)\nreturn x * 2"),
    OddTask("changes a part of its input", "x[0].zero_()\nreturn x.sum()"),
    OddTask(
        "changes a buffer",
        "self.b.mul_(0.5).add_(x.mean(0))\nreturn x - self.b",
        init="self.register_buffer('b', torch.zeros(5))",
    ),
    OddTask("takes any arguments", "return args[0] * 2", names="*args"),
    OddTask("takes a default", "return x * k", names="x, k=3"),
    OddTask(
        "enables gradients itself",
        "with torch.enable_grad():\n    y = x.detach().requires_grad_()\n "
        "   return torch.autograd.grad((y * y).sum(), y)[0]",
    ),
    OddTask("has inputs with gradients", "return (x * 2).detach()", "return [torch.randn(6, 5, requires_grad=True)]"),
    OddTask("has a parameter as input", inputs="return [nn.Parameter(torch.randn(6, 5))]"),
    OddTask("has one tensor as two inputs", "return x + y", "x = torch.randn(6, 5)\nreturn [x, x]", names="x, y"),
    OddTask("has an expanded input", inputs="return [torch.randn(6, 1).expand(6, 5)]"),
    OddTask("has an overlapping input", inputs="return [torch.randn(10).as_strided((6, 5), (1, 1))]"),
    OddTask("has a sliced input", inputs="return [torch.randn(12, 9)[::2, 4:]]"),
    OddTask("has many dimensions", inputs="return [torch.randn([1] * 12)]"),
    OddTask("has inputs in a tuple", inputs="return (torch.randn(6, 5),)"),
    OddTask(
        "has numbers that are not finite",
        "return x.clamp(low, high)",
        "return [torch.randn(6, 5), float('-inf'), float('inf')]",
        names="x, low, high",
    ),
    OddTask(
        "has texts and flags",
        "return x * 2 if mode == 'double' and on else x",
        "return [torch.randn(6, 5), 'double', True]",
        names="x, mode, on",
    ),
    OddTask(
        "has shared parameters",
        "return self.a(x) + self.b(x)",
        init="self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5); self.b.weight = self.a.weight",
    ),
    OddTask(
        "has a buffer that is not saved",
        "return x + self.b",
        init="self.register_buffer('b', torch.ones(5), persistent=False)",
    ),
    OddTask(
        "has parameters in a dict", "return x * self.p['a']", init="self.p = nn.ParameterDict({'a': torch.ones(5)})"
    ),
    OddTask(
        "has complex parameters",
        "return (x * self.w).real",
        init="self.w = nn.Parameter(torch.ones(5, dtype=torch.complex64))",
    ),
    OddTask(
        "has an int8 buffer",
        "return x * self.b",
        init="self.register_buffer('b', torch.randint(-4, 4, (5,), dtype=torch.int8))",
    ),
    OddTask("has a tensor that is no buffer", "return x * self.t", init="self.t = torch.arange(5.0)"),
    OddTask(
        "has hooks",
        "return self.l(x)",
        init="self.l = nn.Linear(5, 5); self.l.register_forward_hook(lambda m, i, o: o * 2)",
    ),
    OddTask(
        "starts a thread",
        "found = []\nworker = threading.Thread(target=lambda: found.append(x "
        "* 2))\nworker.start()\nworker.join()\nreturn found[0]",
    ),
    OddTask("runs in inference mode", "with torch.inference_mode():\n    return x * 2"),
    OddTask(
        "raises and catches an exception",
        "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    return x * 2",
    ),
    OddTask("maps a function over rows", "return torch.func.vmap(lambda row: row * row.sum())(x)"),
)

ERRORS = (
    OddTask(
        "needs gradients",
        "return torch.autograd.grad((x * x).sum(), x)[0]",
        "return [torch.randn(6, 5, requires_grad=True)]",
        error="does not require grad",
    ),
    OddTask("returns nothing", "x * 2", error="tensor"),
    OddTask("returns no tensor", "return ()", error="tensor"),
    OddTask("is NaN everywhere", "return x * float('nan')", error="NaN"),
    OddTask("recurses forever", "return self.forward(x)", error="RecursionError"),
    OddTask("reads a missing file", "return x * len(open('/not/there').read())", error="FileNotFoundError"),
    OddTask("stops itself", "raise KeyboardInterrupt", error="KeyboardInterrupt"),
    OddTask("raises its own exception", "raise Stop('no')", head="class Stop(BaseException): pass", error="Stop"),
    OddTask("exits in get_inputs", inputs="sys.exit(0)", error="SystemExit"),
    OddTask("exits in its constructor", init="sys.exit()", error="SystemExit"),
    OddTask("lacks an argument", init="self.a = args[3]", error="IndexError"),
    OddTask("needs a device that is not there", "return x.to('xpu') * 2", error="failed"),
    OddTask("has an input of another device", inputs="return [torch.randn(3, device='mps')]", error="failed"),
    OddTask(
        "has a parameter without memory",
        "return x * self.w",
        init="self.w = nn.Parameter(torch.ones(5, device='meta'))",
        error="meta|memory",
    ),
    OddTask(
        "has a function as input", "return f(x)", "return [torch.randn(3), torch.relu]", names="x, f", error="value 2"
    ),
    OddTask(
        "has an integer beyond 64 bits",
        "return x * 2",
        "return [torch.randn(3), 1 << 64]",
        names="x, n",
        error="more than 64 bits",
    ),
    OddTask(
        "has a fraction as argument", arguments="import fractions; return [fractions.Fraction(1, 3)]", error="Fraction"
    ),
    OddTask("has a date as argument", arguments="import datetime; return [datetime.date(2020, 1, 1)]", error="date"),
    OddTask("has a module as argument", arguments="return [torch]", error="module"),
    OddTask("has the wrong number of inputs", inputs="return []", error="TypeError"),
    OddTask("has no class Model", head="", forward="return x", error="Model"),
    OddTask("returns itself", "return self", error="output"),
    OddTask("returns a function", "return [x, torch.relu]", error="output"),
    OddTask("kills itself", "os.kill(os.getpid(), 9)", error="ends the process", ends_judges=True),
    OddTask(
        "reads address zero", "import ctypes\nctypes.string_at(0)\nreturn x", error="ends the process", ends_judges=True
    ),
    OddTask(
        "exits without cleaning up in get_inputs", inputs="os._exit(0)", error="ends the process", ends_judges=True
    ),
)


def parameters(tasks: tuple[OddTask, ...]) -> list[Any]:
    return [pytest.param(task, id=task.title) for task in tasks]


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The deaths of judges."""
    found: list[str] = []
    initialise = worker.JudgeDied.__init__

    def counted(self: worker.JudgeDied, *arguments: object, **named: object) -> None:
        found.append(str(arguments))
        initialise(self, *arguments, **named)

    monkeypatch.setattr(worker.JudgeDied, "__init__", counted)
    return found


@pytest.mark.parametrize("task", parameters(JUDGED))
def test_an_odd_task_is_judged(evaluations: Evaluations, task: OddTask, deaths: list[str]) -> None:
    copy = re.sub(r"\bModel\b", "ModelNew", task.source())
    found = evaluations.evaluate(copy, task.source())
    assert found.outcome is (Outcome.INCORRECT if task.incorrect else Outcome.CORRECT), found.message
    assert not deaths


@pytest.mark.parametrize("task", parameters(ERRORS))
def test_a_task_that_cannot_be_used_has_an_error_of_one_line(
    evaluations: Evaluations, task: OddTask, deaths: list[str]
) -> None:
    source = task.source()
    if task.title == "has no class Model":
        source = source.replace("class Model(", "class Network(")
    copy = re.sub(r"\bModel\b", "ModelNew", task.source())
    with pytest.raises(UsageError, match=task.error) as raised:
        evaluations.evaluate(copy, source)
    assert raised.value.message.startswith("task test/task: ")
    assert "\n" not in raised.value.message
    assert bool(deaths) is task.ends_judges
