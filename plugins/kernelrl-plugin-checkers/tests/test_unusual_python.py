"""The Python around kernels: what launching kernels needs is left alone, and nothing else is."""

from __future__ import annotations

import keyword
import re
import types

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernelrl_core.sources.reachability import parse_source
from kernelrl_core.types import Candidate, Task
from kernelrl_plugin_checkers import plain_names, torch_public
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.plain_python import unusual_python
from kernelrl_plugin_checkers.reading import Reading
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_checkers.triton_bodies import unfit_bodies

HEAD = '''\
import functools
import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline

source = """#include <torch/extension.h>
torch::Tensor run_it(torch::Tensor x) { return x; }
"""
ext = load_inline(name="ext", cpp_sources=source, functions=["run_it"])


@triton.autotune(configs=[triton.Config({"B": 64}, num_warps=4)], key=["n"])
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)
'''
MODEL = """

class ModelNew(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        y = torch.empty_like(x)
        BODY
        return y
"""

CLEAN_FILES = {
    "a layer of one's own": "class Own(nn.Linear):\n    def reset_parameters(self):\n        self.weight.zero_()\n",
    "a function of autograd": "class Own(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        ctx.n = x.numel()\n        ctx.save_for_backward(x)\n        return x\n",
    "an extension that is built when it is needed": "_ext = None\ndef get():\n    global _ext\n    if _ext is None:\n"
    "        _ext = load_inline(name='e', cpp_sources=source, functions=['run_it'])\n    return _ext\n",
    "an extension that a class keeps": "class Kept:\n    module = None\n\ndef get():\n"
    "    Kept.module = load_inline(name='e', cpp_sources=source)\n    return Kept.module.run_it\n",
    "a cached choice": "@functools.lru_cache(maxsize=None)\ndef block(n: int) -> int:\n    return min(n, 99)\n",
    "a setting of the build": "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\nos.environ['CXX'] = 'hipcc'\n",
    "a library that may be missing": "try:\n    import cupy as cp\nexcept ImportError as error:\n    print(error)\n",
    "a table of choices": "import enum\nclass Way(enum.Enum):\n    FAST = 1\nWAYS = {Way.FAST: 128}\n",
    "an import that nothing uses": "import time\n",
    "a type that a version lacks": "E4 = getattr(torch, 'float8_e4m3fn', None)\nBIG = hasattr(torch.cuda, 'Stream')\n",
}
CLEAN = {
    "a launch": "kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel())",
    "a grid": "grid = lambda meta: (triton.cdiv(x.numel(), meta['B']),); kernel[grid](x, y, x.numel())",
    "an extension": "y = ext.run_it(x.contiguous())",
    "shapes": "b, *rest = x.shape; n = math.prod(rest); s = x.stride(0); assert x.is_contiguous(), f'{x.shape} of {b}'",
    "an error": "raise ValueError(f'no {type(x).__name__}')",
    "an address for a launch": "ext.run_it(x.data_ptr(), y.data_ptr() if x.is_cuda else 0)",
    "an address under a name": "p = x.data_ptr() if x.is_cuda else None; ext.run_it(p)",
    "alignment": "even = x.data_ptr() % 16 == 0",
    "a stream": "ext.run_it(torch.cuda.current_stream().cuda_stream)",
    "arithmetic of a library": "y = F.relu(torch.matmul(x, self.weight)).sum(-1)",
    "parts of a module by number": "w = [getattr(self, f'weight_{i}') for i in range(self.size)]",
    "where its parameters are": "device = next(self.parameters()).device",
    "a name that nothing defines": "undefined.anything()",
    "a local name that Python has, too": "id = 3; y = y + id",
}
FOUND_FILES = {
    "a finalizer": "import weakref\nweakref.finalize(ext, print)\n",
    "a subclass of a dictionary": "class Late(dict):\n    pass\n",
    "a subclass of a tensor": "class Late(torch.Tensor):\n    pass\n",
    "a metaclass": "class Late(metaclass=ext):\n    pass\n",
    "a special method": "class Late:\n    def __getitem__(self, key):\n        return key\n",
    "a call of its own": "class Late(nn.Module):\n    def __call__(self, x):\n        return x\n",
    "a property": "class Late:\n    @property\n    def x(self):\n        return 1\n",
    "what others call": "class Late(nn.Module):\n    def state_dict(self):\n        return {}\n",
    "a function put in a class": "class Late:\n    def f(self):\n        pass\nLate.f = print\n",
    "a module that changes": "torch.relu = None\n",
    "a file": "text = open('a').read()\n",
    "a file of another name": "read = open\n",
    "a clock": "import time\nbegin = time.time()\n",
    "the address of a function": "mark = id(ext)\n",
    "a module as a value": "held = [torch]\n",
    "all names of a module": "from os import *\n",
    "what a module lists": "names = vars(torch)\n",
    "a builtin as a value": "get = getattr\n",
    "a class made by a call": "Late = type('Late', (dict,), {})\n",
    "the class of classes": "make = type(type(ext))\n",
    "a generator": "def late():\n    yield 1\n",
    "a shared counter": "def make():\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n    return f\n",
    "an annotation that runs": "def f(x: open('a')):\n    pass\n",
    "a decorator that runs": "@vars\ndef f(x):\n    pass\n",
    "other settings": "os.environ['LD_PRELOAD'] = 'a.so'\n",
    "another compiler": "os.environ['CXX'] = './mine'\n",
    "the environment": "every = dict(os.environ)\n",
    "a folder that tells": "try:\n    os.makedirs('a')\nexcept FileExistsError:\n    pass\n",
    "the text of an error": "try:\n    ext.a\nexcept Exception as e:\n    known = 'tmpfs' in str(e)\n",
    "builds in a loop": "for n in range(9):\n    load_inline(name=f'e{n}', cpp_sources=source)\n",
    "an extension at import": "ext.run_it(torch.zeros(1))\n",
    "a name of another package": "e = load_inline(name='judge.operators', cpp_sources=source)\n",
    "a special name in a format": "text = '{0.__class__}'.format(ext)\n",
    "an operator that is registered": "@torch.library.custom_op('a::b', mutates_args=())\ndef f(x):\n    return x\n",
    "warnings as errors": "import warnings\nwarnings.filterwarnings('error')\n",
}
FOUND = {
    "a hook of a tensor": "x.register_hook(print)",
    "a hook of a module": "self.register_forward_hook(print)",
    "a view of NumPy": "a = x.numpy()",
    "the storage": "x.untyped_storage()",
    "another memory": "x.set_(y)",
    "an attribute of a tensor": "x.mark = 1",
    "what a module holds": "self._buffers",
    "the dictionary of an object": "self.__dict__['a'] = 1",
    "the class of an object": "self.__class__ = int",
    "another forward": "self.forward = print",
    "an address that is kept": "self.last = x.data_ptr()",
    "an address that is compared": "p = x.data_ptr(); same = p == self.size",
    "an attribute by a computed name": "getattr(x, 're' + str(self))",
    "an attribute by its name": "getattr(x, 'relu')()",
    "a private attribute of a value": "x._is_view()",
    "the function behind a kernel": "kernel.cache.clear()",
    "the driver of Triton": "triton.runtime.driver.active.run_it()",
    "an attribute that nothing has": "x.anything()",
}


def notes(source: str) -> list[str]:
    tree = parse_source(source)
    assert tree is not None
    reading, kernels = Reading(tree), set[int]()
    assert list(unfit_bodies(reading, kernels)) == []
    return [note for _, _, note in unusual_python(reading, kernels)]


def in_forward(body: str) -> str:
    return HEAD + MODEL.replace("BODY", body)


@pytest.mark.parametrize("text", CLEAN_FILES.values(), ids=CLEAN_FILES)
def test_what_files_of_kernels_hold_is_left_alone(text: str) -> None:
    assert notes(HEAD + text + MODEL.replace("BODY", "pass")) == []


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_what_launches_kernels_is_left_alone(body: str) -> None:
    assert notes(in_forward(body)) == []


@pytest.mark.parametrize("text", FOUND_FILES.values(), ids=FOUND_FILES)
def test_what_no_file_of_kernels_needs_is_found(text: str) -> None:
    assert notes(HEAD + text + MODEL.replace("BODY", "pass"))


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_no_launch_needs_is_found(body: str) -> None:
    assert notes(in_forward(body))


def test_a_finding_names_the_line_and_the_construct() -> None:
    source = in_forward("x.untyped_storage()")
    found = SourceRules(SourceRulesConfig()).check(Candidate(source, "triton"), Task("test", ""), None)
    (finding,) = [finding for finding in found if finding.rule == "unusual_python"]
    assert finding.line == source.split("\n").index("        x.untyped_storage()") + 1
    assert "x.untyped_storage()" in finding.evidence
    assert "attribute untyped_storage" in finding.evidence


def test_the_body_of_a_kernel_is_left_to_the_rule_on_kernels() -> None:
    source = HEAD.replace("    o = ", "    n = id(n)\n    o = ")
    tree = parse_source(source)
    assert tree is not None
    reading, kernels = Reading(tree), set[int]()
    assert list(unfit_bodies(reading, kernels))
    assert list(unusual_python(reading, kernels)) == []


def test_no_word_of_the_file_excuses_what_tensors_and_modules_have() -> None:
    words = "set_ register_hook load_state_dict_pre_hook"
    assert notes(in_forward(f"'{words}'; x.set_(y); self.register_hook = 1; x.register_hook"))


def test_every_attribute_of_a_tensor_and_of_a_module_is_either_usual_or_not() -> None:
    torch = pytest.importorskip("torch")
    for kind in (torch.Tensor, torch.nn.Module()):
        # transformers adds `smart_apply` to modules, in the process of another test.
        public = {name for name in dir(kind) if not name.startswith("_")} - {"smart_apply"}
        assert public <= plain_names.ATTRIBUTES | plain_names.REFUSED
    private = {name for name in dir(torch.nn.Module()) if name.startswith("_") and not name.startswith("__")}
    assert private <= torch_public.MODULE_PRIVATE


def test_no_module_is_among_the_names_of_torch_but_those_that_have_names_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    for module in ("linalg", "special", "fft", "nn"):
        place = getattr(torch, module)
        modules = {name for name in dir(place) if isinstance(getattr(place, name), types.ModuleType)}
        assert {f"torch.{module}.{name}" for name in modules & plain_names.MODULES[f"torch.{module}"]} <= set(
            plain_names.MODULES
        )


@given(st.data())
def test_any_name_of_torch_that_is_not_listed_is_found(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    module = data.draw(st.sampled_from(["", ".nn", ".cuda", ".utils", ".autograd", ".backends", ".jit"]))
    place = torch
    for part in module.split(".")[1:]:
        place = getattr(place, part)
    names = sorted(set(dir(place)) - plain_names.MODULES[f"torch{module}"] - plain_names.SPECIAL_NAMES)
    name = data.draw(st.sampled_from(names))
    assert notes(in_forward(f"torch{module}.{name}"))
    assert notes(in_forward(f"T = torch{module}.{name}(x)"))
    assert notes(f"from torch{module} import {name} as f\n")


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz_", min_size=3, max_size=12))
def test_an_attribute_is_usual_only_if_it_is_listed_or_the_files_own(name: str) -> None:
    own = set(re.findall(r"\w+", HEAD + MODEL))
    known = plain_names.ATTRIBUTES | plain_names.SPECIAL_NAMES | own
    assume(name not in known and not keyword.iskeyword(name))
    assert notes(in_forward(f"x.{name}"))
