"""Which kernels and launch arguments the interpreter accepts: those that Triton accepts on a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import enum, json, math, operator
from collections import namedtuple
import numpy as np, torch, triton, triton.language as tl
from kernelrl_plugin_triton import interpreted
from triton.tools.tensor_descriptor import TensorDescriptor

SCALE = tl.constexpr(2.0)
WIDTH = 4
KEPT = []
Pair = namedtuple("Pair", "scale shift")
larger = np.maximum

class Own(tuple):
    def __iter__(self):
        raise AssertionError("gone through in a launch")

class OwnPair(Pair):
    def __new__(cls, *given):
        if len(given) == 2 and isinstance(given[0], tl.tensor):
            raise AssertionError("made in a launch")
        return super().__new__(cls, *given)

    def __getitem__(self, at):
        raise AssertionError("gone through in a launch")

class Changing(type(math)):
    def __getattr__(self, name):
        return tl.exp

strange = Changing("strange")

class Sequence:
    def __getitem__(self, at):
        return 2.0

class Number(int):
    pass

class OwnTensor(torch.Tensor):
    pass

def plain(x):
    return x * 2.0

@tl.core.builtin
def built(x, _semantic=None):
    return x * 2.0

@triton.constexpr_function
def doubled(x):
    return 2 * x

@triton.constexpr_function
def looked_up(n):
    return np.maximum(n, 0.0)

@triton.jit
def wide(x, W: tl.constexpr = WIDTH):
    return x * (W / 2)

@triton.jit
def indexed(x, given=Sequence()):
    return x * given[0]

@triton.jit
def add(x, y):
    return x + y

@triton.jit
def twice(x):
    return x * SCALE

@triton.jit
def replaced(x):
    return x

replaced.rewrite = lambda: plain

def marked(tensor):
    tensor.data_ptr = lambda: 0
    return tensor

def told(kernel, x, y, given, grid=(1,)):
    try:
        kernel[grid](x, y, 4, *given)
        return y.tolist() == (2.0 * torch.arange(4.0)).tolist()
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

found = {}
"""
KERNEL = """
@triton.jit
def k(x_ptr, y_ptr, n, given=None, CONSTANT: tl.constexpr = 4):
    x = tl.load(x_ptr + tl.arange(0, 4))
    y = x * 2.0
    LINE
    tl.store(y_ptr + tl.arange(0, 4), y)

found[NAME] = told(k, torch.arange(4.0), torch.empty(4), GIVEN)
"""
RIGHT = {
    "y = twice(x)": "()",
    "y = CONSTANT(x)": "(None, twice)",
    "y = wide(x)": "()",
    "y = x * SCALE + 0.0 * tl.sum(x) + 0.0 * tl.reduce(x, 0, add)": "()",
    "y = (x * given.scale).to(CONSTANT) + given.shift[0]": "(Pair(2.0, (0.0,)), tl.float32)",
    "y = x * given[0]": "(OwnPair(2.0, 0.0),)",
    "y = tl.load(given + tl.arange(0, 4)) * 2.0": "(torch.nn.Parameter(torch.arange(4.0)),)",
    "y = given.load([0]) * 2.0": "(TensorDescriptor.from_tensor(torch.arange(4.0), [4]),)",
    "y = x * doubled(CONSTANT) * math.sqrt(CONSTANT) / 8.0": "()",
    "y = x * (1.0 if CONSTANT == 'one' else 2.0)": "(None, 'two')",
    "y = x * tl.cdiv(n, 2) if n == 4 else x": "()",
}
REFUSED = {
    "y = plain(x)": ("()", "CompilationError", "variable plain"),
    "y = built(x)": ("()", "CompilationError", "variable built"),
    "y = larger(x, 0.0)": ("()", "CompilationError", "variable larger"),
    "y = np.maximum(x, 0.0)": ("()", "CompilationError", "variable np"),
    "y = x * WIDTH": ("()", "CompilationError", "variable WIDTH"),
    "KEPT.append(x)": ("()", "CompilationError", "variable KEPT"),
    "operator.index(n)": ("()", "CompilationError", "variable operator"),
    "doubled(n)": ("()", "TypeError", "not tensors"),
    "looked_up(n)": ("()", "CompilationError", "variable np"),
    "looked_up(CONSTANT)": ("()", "CompilationError", "variable np"),
    "y = strange.exp(x)": ("()", "CompilationError", "variable strange"),
    "y = larger(x, max([larger for larger in (0.0,)]))": ("()", "CompilationError", "variable larger"),
    "from math import erfc": ("()", "CompilationError", "ImportFrom"),
    "pass": ("(Own((1, 2)),)", "TypeError", "Own"),
    "pass # an object": ("(Sequence(),)", "TypeError", "Sequence"),
    "pass # a constant object": ("(None, Sequence())", "TypeError", "Sequence"),
    "pass # within a tuple": ("((1, Sequence()),)", "TypeError", "Sequence"),
    "y = indexed(x)": ("()", "TypeError", "Sequence"),
    "y = replaced(x)": ("()", "ValueError", "methods"),
    "pass # a list": ("([1.0],)", "TypeError", "list"),
    "pass # a number of its own": ("(Number(1),)", "TypeError", "Number"),
    "pass # a tensor of its own": ("(torch.zeros(2).as_subclass(OwnTensor),)", "TypeError", "OwnTensor"),
    "pass # a tensor with a replaced data_ptr": ("(marked(torch.zeros(2)),)", "TypeError", "Tensor"),
    "pass # a function": ("(None, plain)", "TypeError", "function"),
}
MORE = """
from kernelrl_judge import provenance
x, y = torch.arange(4.0), torch.zeros(4)
inside = []
watch = provenance.Watch()
watch.begin()

def grid(given):
    inside.append((watch.inside, type(given["n"]).__name__))
    return [1]

found["grid"] = [told(k, x, y, (), grid), [*inside]]
k.add_pre_run_hook(lambda *given: inside.append(watch.inside))
k[(1,)](x, y, 4)
found["hook"] = inside[1:]
watch.end()
found["changed"] = told(scaled, x, y, ())
SCALE = tl.constexpr(2.5)
found["changed"] = [found["changed"], told(scaled, x, y, ())]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("accepted") / "kernels.py"
    lines = {**RIGHT, **{line: given for line, (given, _, _) in REFUSED.items()}, "pass # no more": "()"}
    kernels = "".join(
        KERNEL.replace("LINE", line).replace("NAME", repr(line)).replace("GIVEN", given)
        for line, given in lines.items()
    )
    scaled = KERNEL.partition("found[")[0].replace("def k", "def scaled").replace("LINE", "y = x * SCALE")
    script.write_text(f"{HEAD}{scaled}{kernels}{MORE}\nprint(json.dumps(found))\n")
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize("line", RIGHT)
def test_supported_kernels_and_arguments_are_executed(found: dict[str, object], line: str) -> None:
    assert found[line] is True


@pytest.mark.parametrize("line", REFUSED)
def test_unsupported_kernels_and_arguments_raise_tritons_error(found: dict[str, object], line: str) -> None:
    _, kind, text = REFUSED[line]
    assert str(found[line]).startswith(kind + ":")
    assert text in str(found[line])


def test_grids_and_hooks_are_called_before_the_launch_with_its_arguments(found: dict[str, object]) -> None:
    assert found["grid"] == [True, [[0, "int"]]]
    assert found["hook"] == [0]


def test_a_constant_cannot_change_after_the_first_launch(found: dict[str, object]) -> None:
    first, then = found["changed"]  # type: ignore[misc]
    assert first is True
    assert then.startswith("RuntimeError: Global variable SCALE has changed")
