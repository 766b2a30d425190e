"""C++ that a candidate puts together while it runs: the rules are applied to what was built."""

from __future__ import annotations

import json

import pytest

from kernelrl_core.types import Candidate, Evaluation, Finding, Outcome, Severity, Task
from kernelrl_core.types import serialization as codec
from kernelrl_judge.building.hidden import hidden_facts
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig

TASK = Task("test", "")
DECLARED = "torch::Tensor run(torch::Tensor a);"
KERNEL = "__global__ void twice(const float* a, float* out) { out[threadIdx.x] = 2 * a[threadIdx.x]; }\n"
LAUNCHED = KERNEL + (
    "torch::Tensor run(torch::Tensor a) {\n  auto out = torch::empty_like(a);\n"
    "  twice<<<1, 32>>>(a.data_ptr<float>(), out.data_ptr<float>());\n  return out;\n}\n"
)
GLUE = "torch::Tensor run(torch::Tensor a) {\n  return at::matmul(a, a);\n}\n"
DECOY = KERNEL + GLUE
COMPUTED = f"""\
import base64
import torch
from torch.utils.cpp_extension import load_inline

TEXT = open_up("...")
ext = load_inline(name="ext", cpp_sources={DECLARED!r}, cuda_sources=TEXT, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, a):
        return ext.run(a)
"""


def evaluated(source: str, *texts: str, outcome: Outcome = Outcome.CORRECT, flags: str = "") -> Evaluation:
    lists = {key: [] for key in ("cflags", "device_flags", "ldflags", "include_paths")}
    asked = {"name": "ext", "cpp_sources": [DECLARED], "device_sources": texts, "functions": [["run", "run"]], **lists}
    asked["cflags"] = [flags]
    return Evaluation(outcome, hidden=hidden_facts(source, [json.dumps(asked).encode()], "cuda")[0])


def found(source: str, evaluation: Evaluation | None) -> dict[str, Finding]:
    candidate = Candidate(source, "cuda", facts=CudaBackend(CudaConfig()).source_facts(source))
    return {finding.rule: finding for finding in SourceRules(SourceRulesConfig()).check(candidate, TASK, evaluation)}


def test_a_library_behind_a_computed_text_is_found_once_it_was_built() -> None:
    assert "library_glue" not in found(COMPUTED, None)
    glue = found(COMPUTED, evaluated(COMPUTED, GLUE))["library_glue"]
    assert glue.severity is Severity.SUSPECT
    assert glue.evidence == "in what was built, line 2: return at::matmul(a, a); (matmul)"


@pytest.mark.parametrize("text", [GLUE, DECOY])
def test_what_was_built_has_no_kernel_that_is_launched(text: str) -> None:
    assert "no_kernel" not in found(COMPUTED, None)
    assert "no_kernel" in found(COMPUTED, evaluated(COMPUTED, text))


def test_a_kernel_in_a_computed_text_is_a_kernel() -> None:
    assert found(COMPUTED, evaluated(COMPUTED, LAUNCHED)) == {}


@pytest.mark.parametrize("outcome", [Outcome.RUNTIME_ERROR, Outcome.COMPILE_ERROR, Outcome.TIMEOUT])
def test_what_did_not_come_to_its_end_may_have_had_a_kernel(outcome: Outcome) -> None:
    assert "no_kernel" not in found(COMPUTED, evaluated(COMPUTED, GLUE, outcome=outcome))


def test_kernels_that_macros_make_in_another_build_leave_doubt() -> None:
    macro = "#define MAKE(name) __global__ void name() {}\nMAKE(twice)\nvoid run() { twice<<<1, 1>>>(); }\n"
    source = COMPUTED.replace('open_up("...")', repr(macro))
    assert "no_kernel" not in found(source, evaluated(source, macro, flags="-DTYPE=float"))
    assert "no_kernel" not in found(COMPUTED, evaluated(COMPUTED, macro, GLUE))


def test_what_the_source_shows_is_not_told_twice() -> None:
    template = COMPUTED.replace('open_up("...")', f"{GLUE!r}.replace('WIDTH', str(len(__file__)))")
    assert "library_glue" in found(template, None)
    assert "library_glue" not in found(template, evaluated(template, GLUE.replace("a, a", "a,  a")))


def test_a_source_that_shows_what_it_builds_is_looked_at_once() -> None:
    source = COMPUTED.replace('open_up("...")', repr(LAUNCHED))
    evaluation = evaluated(source, LAUNCHED)
    assert evaluation == Evaluation(Outcome.CORRECT)
    assert found(source, evaluation) == {}


def test_a_wait_in_the_python_counts_for_what_was_built() -> None:
    stream = "void run() { cudaStream_t s; cudaStreamCreate(&s); }\n"
    assert "side_stream" in found(COMPUTED, evaluated(COMPUTED, stream))
    waits = COMPUTED.replace("return ext", "torch.cuda.synchronize()\n        return ext")
    assert "side_stream" not in found(waits, evaluated(waits, stream))


def test_a_verdict_that_was_kept_gives_the_same_findings() -> None:
    evaluation = evaluated(COMPUTED, DECOY)
    kept = codec.from_json(Evaluation, json.loads(json.dumps(codec.to_json(evaluation))))
    assert found(COMPUTED, kept) == found(COMPUTED, evaluation)
    assert {"no_kernel", "library_glue"} <= set(found(COMPUTED, kept))


@pytest.mark.parametrize(
    "text",
    [
        "torch::Tensor run(torch::Tensor a) { return matmul(a, a); }",
        "torch::Tensor run(torch::Tensor a) { auto f = &at::matmul; return f(a, a); }",
        "torch::Tensor run(torch::Tensor a) { return at::_ops::matmul::call(a, a); }",
        "namespace other = ::at;\ntorch::Tensor run(torch::Tensor a) { return other::matmul(a, a); }",
        "#define PRODUCT matmul\ntorch::Tensor run(torch::Tensor a) { return at::PRODUCT(a, a); }",
        "auto bound = at::relu;",
        "#define PRODUCT at::matmul\ntorch::Tensor run(torch::Tensor a) { return PRODUCT(a, a); }",
        "void run(float* a) { at::cuda::blas::gemm<float>('n', 'n', 8, 8, 8, 1, a, 8, a, 8, 0, a, 8); }",
        'py::object run(py::object a) { return py::eval("lambda a: a @ a")(a); }',
        'PyObject* run(PyObject* a) { return PyObject_CallMethod(a, "matmul", "O", a); }',
    ],
)
def test_a_library_is_found_under_other_names(text: str) -> None:
    assert "library_glue" in found(COMPUTED, evaluated(COMPUTED, text))


@pytest.mark.parametrize(
    "text",
    [
        "__device__ float softmax(float x) { return x; }\nvoid run() { softmax(1.0f); }",
        "void run() { auto softmax = [](float x) { return x; }; softmax(1.0f); }",
        "#define mm(x) x * x\nvoid run() { int a = mm(2); }",
        "float softmax(float x);\n#define OP softmax\nvoid run() { OP(1.0f); }",
        "#include <ATen/ops/empty.h>\nnamespace cg = cooperative_groups;\nvoid run() { at::empty({2}); cg::sync(); }",
        "struct Layer { void linear(int); void run() { linear(1); this->linear(2); } };",
        "void run() { at::cuda::getCurrentCUDAStream(); std::max(1, 2); exp(1.0); max(1, 2); }",
    ],
)
def test_functions_of_its_own_are_no_library(text: str) -> None:
    assert "library_glue" not in found(COMPUTED, evaluated(COMPUTED, text))
