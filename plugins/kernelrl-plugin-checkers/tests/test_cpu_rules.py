"""The rule on imports and C++ of candidates that a CPU executes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.api.checkers import Candidate, EmbeddedSource, Outcome, SourceFacts
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_testing.values import make_evaluation, make_task

RULE = "cpu_libraries"


def found(source: str, *cpp: str, mode: str = "cpu", outcome: Outcome = Outcome.CORRECT) -> list[str]:
    """Evidence of the rule for a source and the C++ inside it."""
    embedded = tuple(EmbeddedSource("cpp", text, 1) for text in cpp)
    candidate = Candidate(source, "cpp", facts=SourceFacts(embedded=embedded))
    evaluation = attrs.evolve(make_evaluation(outcome), provenance={"mode": mode})
    findings = SourceRules(SourceRulesConfig()).check(candidate, make_task(), evaluation)
    return [finding.evidence for finding in findings if finding.rule == RULE]


FORBIDDEN = {
    "numpy": "import numpy as np",
    "scipy": "from scipy.linalg import blas",
    "ctypes": "def f():\n    import ctypes",
    "threads": "import threading",
    "pools": "from concurrent.futures import ThreadPoolExecutor",
    "the dispatcher": "import torch\nguard = torch._C._DisableTorchDispatch()",
    "the dispatcher by another name": "from torch import _C",
    "modes of the dispatcher": "from torch.utils._python_dispatch import TorchDispatchMode",
    "threads of torch": "import torch\nw = torch.jit.fork(f)",
    "an array library of triton": "import triton\nnp = triton.runtime.interpreter.np",
    "an array library by an import function of torch": "import torch\nnp = torch.importlib.import_module('numpy')",
    "loaded modules of an allowed module": "import logging\nnp = logging.sys.modules['numpy']",
    "threads of an allowed module": "from logging import threading",
    "functions of Python that torch passes on": "import torch\ntorch.builtins.exec('import numpy')",
    "an optional array library": "try:\n    import numpy\nexcept ImportError:\n    numpy = None",
    "an optional module of Python": "try:\n    import ctypes\nexcept ImportError:\n    ctypes = None",
    "another library without a reason": "import flash_attn",
    "loaded modules": "import sys\nnp = sys.modules['numpy']",
    "code made of text": "exec('import nump' + 'y')",
    "an import without a statement": "np = __import__('numpy')",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_way_to_a_library_in_python_is_reported(name: str) -> None:
    assert found(FORBIDDEN[name])


def test_evidence_has_the_line_and_the_module() -> None:
    assert found("import torch\nimport numpy as np") == ["line 2: import numpy as np (import of numpy)"]


ALLOWED = (
    *("import torch, math, os, functools", "import torch.nn.functional as F", "from __future__ import annotations"),
    *("from torch.utils.cpp_extension import load_inline", "import triton.language as tl"),
    *("from triton.language.extra import libdevice", "model.eval()", "import re\nword = re.compile('a')"),
    *("import torch\ntorch.compile(f)", "def compile(x):\n    return x\ncompile(1)", "x.numpy()"),
    *("if __name__ == '__main__':\n    import numpy", "import torch.distributed as dist\ndist.is_initialized()"),
    "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None",
    *("from packaging import version", "from packaging.version import Version", "import copy\ncopy.sys.argv"),
    "import torch\ntorch.select(x, 0, 1)",
)


@pytest.mark.parametrize("source", ALLOWED)
def test_torch_triton_and_plain_modules_are_allowed(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    "text",
    [
        "torch::Tensor f(torch::Tensor x, py::object g) { return g(x).cast<torch::Tensor>(); }",
        "torch::Tensor f(pybind11::function g);",
        "PyObject_CallObject(f, x);",
        "#include <pybind11/functional.h>",
        "c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::Python);",
        "void* f = dlsym(RTLD_DEFAULT, name);",
    ],
)
def test_objects_of_python_and_switches_in_cpp_are_reported(text: str) -> None:
    assert found("", text)


@pytest.mark.parametrize(
    "text",
    [
        "py::tuple f(torch::Tensor x) { return py::make_tuple(x, x); }",
        "#include <thread>\nvoid f() { std::thread([] {}).join(); std::function<int(int)> g; }",
        "// dlsym and py::object in a comment",
        'const char* text = "dlsym";',
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
    ],
)
def test_plain_cpp_has_no_finding(text: str) -> None:
    assert found("", text) == []


def test_a_source_that_is_built_at_run_time_is_read() -> None:
    evaluation = make_evaluation(Outcome.CORRECT)
    hidden = attrs.evolve(evaluation.hidden, embedded=(EmbeddedSource("cpp", "py::function g;", 1),))
    evaluation = attrs.evolve(evaluation, hidden=hidden, provenance={"mode": "cpu"})
    (finding,) = (
        finding
        for finding in SourceRules(SourceRulesConfig()).check(Candidate("", "cpp"), make_task(), evaluation)
        if finding.rule == RULE
    )
    assert (finding.line, "py::function" in finding.evidence) == (None, True)


@pytest.mark.parametrize(
    "named", [{"mode": "gpu"}, {"mode": "compile"}, {"outcome": Outcome.HACKED}], ids=["gpu", "compile", "hacked"]
)
def test_the_rule_is_for_candidates_that_a_cpu_executed_and_no_hack_ended(named: dict[str, Any]) -> None:
    assert found("import numpy", **named) == []
