"""What kernels of Triton may name and call: what Triton compiles, and nothing that Python alone could run."""

from __future__ import annotations

import inspect

import pytest

from kernelrl_core.sources.reachability import parse_source
from kernelrl_plugin_checkers import triton_names
from kernelrl_plugin_checkers.reading import Reading
from kernelrl_plugin_checkers.triton_bodies import unfit_bodies

HEAD = """\
import math
import operator
from collections import namedtuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import interpreter_builder as builder

try:
    from triton.language.extra.cuda.libdevice import rsqrt
except ImportError:
    from triton.language.math import rsqrt

LOG2E: tl.constexpr = math.log2(math.e)
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)
DTYPE = tl.float16
ARRAYS = vars(np)
KEPT = []
larger = np.maximum


class Answers:
    def __getitem__(self, at):
        return 1.0


ANSWERS = Answers()


def plain(x):
    return np.maximum(x, 0.0)


@triton.jit
def helper(x, y):
    return tl.maximum(x, y)


@triton.constexpr_function
def root(n):
    return math.sqrt(n)


def make(combine):
    @triton.jit
    def inner(x_ptr, OP: tl.constexpr):
        tl.store(x_ptr, combine(OP(tl.load(x_ptr)), 1.0))

    return inner


@triton.autotune(configs=[triton.Config({"B": 2**n}) for n in (5, 6)], key=["n"], prune_configs_by=None)
@triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})
@triton.jit
def kernel(x_ptr, y_ptr, n: int, pair, OP: tl.constexpr, B: tl.constexpr, EVEN: tl.constexpr = True):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32)
    BODY
    tl.store(y_ptr + at, x, mask=at < n)
"""
CLEAN = {
    "a helper": "x = helper(x, 0.0)",
    "a function of a reduction": "x += tl.reduce(x, 0, helper)",
    "a parameter that is called": "x = OP(x)",
    "fields of a tuple": "x = pair.scale * pair.op(x) + pair[0]",
    "libdevice": "x = rsqrt(x) + tl.extra.cuda.libdevice.tanh(x) + tl.math.exp2(x)",
    "constants": "x = tl.where(x > LARGEST, x.to(DTYPE).to(x.dtype), x * LOG2E * math.pi * math.sqrt(B))",
    "a function of constants": "x = x * root(B)",
    "types": "x = x.to(y_ptr.dtype.element_ty).to(tl.pointer_type(tl.int8), bitcast=True)",
    "loops": "for i in tl.static_range(math.ceil(B)):\n        x += i\n    for i in range(0, n, B):\n        x += i",
    "assembly": "x = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [x], dtype=tl.int32, is_pure=True, pack=1)",
    "what prints and asserts": "tl.device_print('x', x)\n    tl.static_assert(len(x.shape) == 1, f'{B}')\n    print(x)",
    "sums with a carry": "x = tl.associative_scan((x, x), 0, helper)[0]; x = x.reshape(B)[:, None].trans()",
    "a name of nowhere": "x = language.exp(x)",
    "an attribute by its name": "x = x * getattr(pair, 'scale') if hasattr(pair, 'scale') else x",
}
FOUND = {
    "a function of a library": "x = np.maximum(x, 0.0)",
    "under another name": "x = larger(x, 0.0)",
    "handed on": "x += tl.reduce(x, 0, np.add)",
    "a function of Python that calls one": "x = plain(x)",
    "a function of the standard library": "x = operator.index(x)",
    "mathematics of what is loaded": "x = math.erfc(x)",
    "mathematics of a loop": "for i in range(n):\n        x += math.exp(i)",
    "a global that can change": "KEPT.append(x)",
    "an object": "x += ANSWERS[0]",
    "a table": "x = ARRAYS['maximum'](x, 0.0)",
    "a class": "x = Answers()[0]",
    "what lies behind a tensor": "x.handle",
    "by its name": "getattr(x, 'han' + 'dle')",
    "by a computed name": "getattr(x, pair.name)",
    "the interpreter": "x = builder.binary_op(x, x, helper)",
    "a tensor of its own": "x = tl.tensor(x, x.type)",
    "private attributes": "x.__class__",
    "another class's methods": "x = (2.0 * n).hex()",
    "an import": "import scipy",
    "a function of constants, of what is loaded": "x = root(x)",
    "a name that a comprehension has as well": "x = larger(x, max([larger for larger in (0.0,)]))",
    "a name that a lambda has as well": "(lambda larger: larger)(x); larger(x, 0.0)",
    "a global that is written": "global LAST\n    LAST = x",
    "a function of Python's own": "x = vars(x)",
    "a kernel's own function": "helper.fn(x)",
    "what the language imports": "tl.core.inspect.stack()",
}


def notes(body: str) -> list[str]:
    tree = parse_source(HEAD.replace("BODY", body))
    assert tree is not None
    return [note for _, _, note in unfit_bodies(Reading(tree))]


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_what_triton_compiles_is_left_alone(body: str) -> None:
    assert notes(body) == []


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_python_alone_could_run_is_found(body: str) -> None:
    assert notes(body)


def test_the_names_are_those_of_triton() -> None:
    language = pytest.importorskip("triton.language")
    # Modules of its own stand there once somebody has imported them.
    own = {name for name, value in vars(language).items() if inspect.ismodule(value)} - triton_names.LANGUAGE
    public = {name for name in dir(language) if not name.startswith("_")} - own
    assert public <= triton_names.LANGUAGE
    for kind in (language.tensor, language.core.tensor_descriptor_base):
        methods = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
        assert methods <= triton_names.METHODS
