"""The front end refuses what Triton does not compile, and accepts what it compiles, before a kernel is interpreted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAD = """
import json, math, operator
from collections import namedtuple
import numpy as np, torch, triton, triton.language as tl
from kernelrl_plugin_triton import interpreted
from triton.language.extra.cuda.libdevice import rsqrt
from triton.tools.tensor_descriptor import TensorDescriptor

SCALE = tl.constexpr(2.0)
ALIGN = 4
KEPT = []
Pair = namedtuple("Pair", "scale shift")
larger = np.maximum
calls = []

class Sequence:
    def __getitem__(self, at):
        return 2.0

def plain(x):
    return np.maximum(x, 0.0)

@triton.constexpr_function
def doubled(x):
    return 2 * x

@triton.jit
def add(x, y):
    return x + y

@triton.jit
def twice(x):
    return x * SCALE

def closing(function):
    @triton.jit
    def inner(x):
        return function(x)

    return inner

inner = closing(twice)

def reported(kernel, given, **options):
    x, y = torch.arange(4.0), torch.empty(4)
    try:
        kernel[(2,)](x, y, 4, *given, **options)
        return y.tolist() == [0.0, 2.0, 4.0, 6.0]
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

found[NAME] = reported(k, GIVEN)
"""
OPTIONS = {
    "num_warps=8, num_stages=3, num_ctas=1, maxnreg=128": "True",
    "enable_fp_fusion=False, CONSTANT=4": "True",
    "num_wraps=4": "KeyError: 'Keyword argument num_wraps was specified but unrecognised; did you mean num_warps?'",
    "CONSTNT=4": "KeyError: 'Keyword argument CONSTNT was specified but unrecognised; did you mean CONSTANT?'",
    "qqq=4": "KeyError: 'Keyword argument qqq was specified but unrecognised'",
    "num_warps=3": "AssertionError: num_warps must be a power of 2",
}
ACCEPTED = {
    "y = twice(x)": "()",
    "y = inner(x)": "()",
    "y = CONSTANT(x)": "(None, twice)",
    "y = x * SCALE + 0.0 * tl.sum(x) + 0.0 * tl.reduce(x, 0, add) + 0.0 * x.max()": "()",
    "y = x * given[0] + given[1]": "((2.0, 0.0),)",
    "y = x * given.scale + given.shift": "(Pair(2.0, 0.0),)",
    "y = tl.load(given + tl.arange(0, 4)) * 2.0": "(torch.nn.Parameter(torch.arange(4.0)),)",
    "y = given.load([0]) * 2.0": "(TensorDescriptor.from_tensor(torch.arange(4.0), [4]),)",
    "y = x * doubled(CONSTANT) * (CONSTANT // 2) / 8.0": "()",
    "y = x * (1.0 if CONSTANT == 'one' else 2.0)": "(None, 'two')",
    "y = x * tl.cdiv(n, 2) if n == 4 else x": "()",
    "if CONSTANT == 'mean': raise ValueError('no means')": "(None, 'sum')",
    "tl.static_assert(CONSTANT >= 4, f'{CONSTANT} is too small')": "()",
    "for i in range(0, n, 4): y = y + 0.0 * i": "()",
    "y = y + 0.0 * rsqrt(x + 1.0)": "()",
    "pair = (x, x); y = pair[0] + pair[1]": "()",
    "y = tl.where((x >= 0) and (x < n), y, 0.0)": "()",
}
REFUSED = {
    "y = larger(x, 0.0)": ("()", "CompilationError", "global variable larger"),
    "y = plain(x)": ("()", "CompilationError", "global variable plain"),
    "y = np.maximum(x, 0.0)": ("()", "CompilationError", "np.maximum"),
    "y = x * ALIGN": ("()", "CompilationError", "global variable ALIGN"),
    "KEPT.append(x)": ("()", "CompilationError", "global variable KEPT"),
    "y = x * math.exp(n)": ("()", "CompilationError", "math.exp"),
    "if CONSTANT == 'mean': raise ValueError('no means')": ("(None, 'mean')", "UnsupportedLanguageConstruct", "Raise"),
    "y = tl.arange(0, 3)": ("()", "CompilationError", "power of 2"),
    "y = x[1]": ("()", "CompilationError", "unsupported tensor index"),
    "parts = []; parts.append(x)": ("()", "CompilationError", "append"),
    "for i in range(n): break": ("()", "UnsupportedLanguageConstruct", "Break"),
    "y = x.handle.data": ("()", "CompilationError", "data"),
    "y = x * int(tl.sum(x))": ("()", "CompilationError", "int("),
    "x.numpy()": ("()", "CompilationError", "numpy"),
    "calls.append(1)": ("()", "CompilationError", "global variable calls"),
    "tl.static_assert(CONSTANT > 4, 'too small')": ("()", "CompileTimeAssertionFailure", "too small"),
    "pass # an object": ("(Sequence(),)", "TypeError", "Sequence"),
    "pass # a list": ("([object()],)", "TypeError", "list"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("frontend") / "kernels.py"
    cases = [*((line, given) for line, (given, _, _) in REFUSED.items()), *ACCEPTED.items()]
    kernels = "".join(
        KERNEL.replace("LINE", line).replace("NAME", repr(f"{line} {given}")).replace("GIVEN", given)
        for line, given in cases
    )
    kernels += "".join(f"found[{options!r}] = reported(k, (), {options})\n" for options in OPTIONS)
    script.write_text(f"{HEAD}{kernels}\nprint(json.dumps(found))\n")
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


@pytest.mark.parametrize("line", ACCEPTED)
def test_kernel_that_triton_compiles_is_executed(found: dict[str, object], line: str) -> None:
    assert found[f"{line} {ACCEPTED[line]}"] is True


@pytest.mark.parametrize("line", REFUSED)
def test_kernel_that_triton_does_not_compile_raises_its_error(found: dict[str, object], line: str) -> None:
    given, kind, text = REFUSED[line]
    assert str(found[f"{line} {given}"]).startswith(kind + ":")
    assert text in str(found[f"{line} {given}"])


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_a_launch_are_checked_as_on_a_gpu(found: dict[str, object], options: str) -> None:
    assert str(found[options]) == OPTIONS[options]
