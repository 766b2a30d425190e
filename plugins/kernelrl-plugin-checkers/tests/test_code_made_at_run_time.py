"""Python that is made while it runs: what makes code out of text is suspect under whatever name it goes."""

from __future__ import annotations

import pytest

from kernelrl_core.types import Candidate, Severity, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_triton.backend import TritonBackend
from kernelrl_plugin_triton.config import TritonConfig

SOURCE = """\
import torch
import triton
import triton.language as tl

TEXT = "..."


@triton.jit
def kernel(a, out):
    tl.store(out, tl.load(a) * 2)


{}


class ModelNew(torch.nn.Module):
    def forward(self, a):
        out = torch.empty_like(a)
        kernel[(1,)](a, out)
        return out
"""

MADE = {
    "exec": "exec(TEXT)",
    "eval of a compiled text": "f = eval(compile(TEXT, 'f', 'eval'))",
    "by its module": "import builtins\nbuiltins.exec(TEXT)",
    "by a name that is put together": "import builtins\ngetattr(builtins, 'ex' + 'ec')(TEXT)",
    "by a name that is computed": "import builtins\ngetattr(builtins, 'cexe'[::-1])(TEXT)",
    "by the builtins of the module": "__builtins__['exec'](TEXT)",
    "by the globals": "globals()['__builtins__']['exec'](TEXT)",
    "by a computed global": "globals()['__snitliub__'[::-1]](TEXT)",
    "handed on": "list(map(exec, [TEXT]))",
    "under another name": "run = exec\nrun(TEXT)",
    "under its own name": "exec = exec\nexec(TEXT)",
    "a module from a file": "import importlib.util\nspec = importlib.util.spec_from_file_location('k', '/tmp/k.py')",
    "a loader": "from importlib.machinery import SourceFileLoader as L\nL('k', '/tmp/k.py').load_module()",
    "a script": "import runpy\nrunpy.run_path('/tmp/k.py')",
    "another directory of modules": "import sys\nsys.path.insert(0, '/tmp')\nimport k",
    "an interpreter": "import code\ncode.InteractiveInterpreter().runsource(TEXT)",
    "a timer": "import timeit\ntimeit.timeit(TEXT)",
    "a function of a code object": "f = type(lambda: 0)(TEXT, {})",
    "a library": "torch.ops.load_library('/tmp/k.so')",
    "lines that the source is read from": "import linecache\nlinecache.cache['k'] = (1, None, [], 'k')",
    "lines that are read again": "import linecache\nlinecache.clearcache()",
    "another source for a kernel": "kernel._unsafe_update_src(TEXT)",
    "another source, assigned": "kernel.src = TEXT",
    "another source, set": "setattr(kernel, '_src', TEXT)",
}

HONEST = {
    "a model in evaluation": "torch.nn.Identity().eval()",
    "a pattern": "import re\nre.compile('x')",
    "a function of that name": "def eval(x):\n    return x\n\n\neval(1)",
    "a kernel by its name": "chosen = globals()['kernel']",
    "a field of that name": "class Edge:\n    def __init__(self):\n        self.src = 1",
    "a copy": "class A:\n    def copy(self):\n        return type(self)()",
}


def severity(text: str) -> Severity | None:
    source = SOURCE.format(text)
    candidate = Candidate(source, "triton", facts=TritonBackend(TritonConfig()).source_facts(source))
    found = SourceRules(SourceRulesConfig()).check(candidate, Task("t", ""), None)
    return next((finding.severity for finding in found if finding.rule == "dynamic_code"), None)


@pytest.mark.parametrize("text", MADE.values(), ids=MADE.keys())
def test_code_that_is_made_of_text_is_suspect(text: str) -> None:
    assert severity(text) is Severity.SUSPECT


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST.keys())
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert severity(text) is None
