"""Candidates that import a package of the user's, in the sandbox."""

from __future__ import annotations

from shared_evaluations import KERNEL, REFERENCE, Evaluations

from kernelrl_core.api.evaluators import Outcome

_PARTS = KERNEL.partition("class ModelNew")
PACKAGE = {
    "own/__init__.py": "from .relu import relu_double\n",
    "own/relu.py": f"""{_PARTS[0]}
def relu_double(x):
    y = torch.empty_like(x)
    n = x.numel()
    kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y
""",
}
CANDIDATE = """
import torch
from own import relu_double
# BEFORE

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return relu_double(x)
"""
CPP = '''
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    for (int64_t i = 0; i < x.numel(); i++) y.data_ptr<float>()[i] = std::max(x.data_ptr<float>()[i], 0.0f) * 2.0f;
    return y;
}
"""
relu_double = load_inline(name="own_relu", cpp_sources=SOURCE, functions=["relu_double"]).relu_double
'''


def test_a_candidate_calls_kernels_of_a_package(evaluations: Evaluations) -> None:
    found = evaluations.evaluate(CANDIDATE, package=PACKAGE)
    assert (found.outcome, found.facts.launches) == (Outcome.CORRECT, ("kernel",)), found.message
    assert "package_sha256" in found.provenance


def test_a_candidate_calls_an_extension_that_a_package_builds(evaluations: Evaluations) -> None:
    found = evaluations.evaluate(CANDIDATE, backend="cpp", package={"own.py": CPP}, timing=False)
    assert found.outcome is Outcome.CORRECT, found.message


def test_the_next_candidate_has_no_package(evaluations: Evaluations) -> None:
    evaluations.evaluate(CANDIDATE, package=PACKAGE)
    found = evaluations.evaluate(CANDIDATE)
    assert (found.outcome, "No module named 'own'" in found.message) == (Outcome.COMPILE_ERROR, True)


def test_the_files_are_read_only(evaluations: Evaluations) -> None:
    change = "import own.relu; open(own.relu.__file__, 'a')"
    found = evaluations.evaluate(CANDIDATE.replace("# BEFORE", change), package=PACKAGE)
    assert (found.outcome, "PermissionError" in found.message) == (Outcome.COMPILE_ERROR, True), found.message


def test_an_error_names_the_file_and_the_line_of_the_package(evaluations: Evaluations) -> None:
    failing = PACKAGE | {"own/relu.py": "\ndef relu_double(x):\n    return x + undefined\n"}
    found = evaluations.evaluate(CANDIDATE, REFERENCE, package=failing)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "own/relu.py line 3, in relu_double: return x + undefined" in found.message
