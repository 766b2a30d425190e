"""The backend `cpp`: builds, evaluations and timings where a C++ compiler is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.backends import Example
from kernelrl_core.api.checkers import Evaluation, SourceFacts
from kernelrl_core.api.evaluators import Cause
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_cpp.backend import CppBackend
from kernelrl_plugin_cpp.config import CppConfig
from kernelrl_plugin_cpp.examples import FEW_SHOT, ONE_SHOT
from kernelrl_testing.fixtures import AssertKernel, Evaluate
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import require_times

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

Judge = Callable[..., Evaluation]
FILE = """#include <torch/extension.h>
torch::Tensor difference(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    const int64_t n = a.numel();
    const float *x = a.data_ptr<float>(), *y = b.data_ptr<float>();
    for (int64_t i = 0; i < n; i++) out.data_ptr<float>()[i] = (x[i] - y[i]) * 3.0f;
    return out;
}
"""


@pytest.fixture
def judge(evaluate: Evaluate) -> Judge:
    """Evaluates a kernel for a task."""

    def run(
        kernel: str, task: str = ONE_SHOT.reference, *, kernels: tuple[str, ...] = (), **settings: Any
    ) -> Evaluation:
        return evaluate(make_request(kernel, task, "cpp", kernels=kernels, settings={"trials": 2, **settings}))

    return run


@pytest.mark.parametrize("example", [ONE_SHOT, *FEW_SHOT], ids=lambda example: example.name)
def test_an_example_is_correct_and_its_output_depends_on_the_kernel(judge: Judge, example: Example) -> None:
    found = judge(example.kernel, example.reference, kernels=("anything",))
    assert (found.outcome, found.message, found.facts.no_op == "correct") == (Outcome.CORRECT, "", False)


def test_a_file_of_cpp_is_a_kernel_and_its_compile_error_has_its_line(
    assert_kernel: AssertKernel, tmp_path: Path
) -> None:
    file = tmp_path / "difference.cpp"
    file.write_text(FILE)
    settings = ["evaluation.trials=2", "evaluation.probes=[]"]
    assert assert_kernel(ONE_SHOT.reference, file, overrides=settings).correct
    file.write_text(FILE.replace("a.numel()", "a.numle()"))
    with pytest.raises(AssertionError, match=r"difference\.cpp:4:"):
        assert_kernel(ONE_SHOT.reference, file, overrides=settings)


def test_second_build_of_a_source_makes_no_python_module_and_comes_from_the_cache(judge: Judge) -> None:
    judge(ONE_SHOT.kernel)
    (build,) = judge(ONE_SHOT.kernel).facts.builds
    assert (build.route, build.cached) == ("bound", True)


def test_correct_kernel_is_timed_against_the_reference(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel, timing=True, timing_trials=10)
    assert found.outcome is Outcome.CORRECT
    require_times(found)
    assert found.speedup == pytest.approx(found.baseline.median_us / found.runtime.median_us, rel=1e-6)
    assert found.speedup_ci[0] <= found.speedup <= found.speedup_ci[1]
    assert found.facts.roofline.compulsory_bytes == 3 * 300 * 700 * 4


def test_kernel_that_computes_only_in_trials_is_a_hack(judge: Judge) -> None:
    counting = "class ModelNew(nn.Module):\n    calls = 0\n"
    # After two trials, some probe calls and some timed ones, each call returns the outputs of the call before it.
    honest_at_first = (
        "        ModelNew.calls += 1\n        found = extension.scaled_difference(a, b)\n"
        "        kept, ModelNew.kept = getattr(ModelNew, 'kept', found), found\n"
        "        return kept if ModelNew.calls > 40 else found\n"
    )
    # A trial of a kernel with threads has many more calls.
    before, _, _ = ONE_SHOT.kernel.replace("#pragma omp", "// omp").partition("class ModelNew")
    source = f"{before}{counting}    def forward(self, a, b):\n{honest_at_first}"
    found = judge(source, timing=True, timing_trials=10)
    assert found.outcome is Outcome.HACKED, found.detail
    assert found.tests_passed == found.tests_total
    assert [finding.rule for finding in found.findings] == ["replay"]


def test_compile_error_has_its_line_and_no_paths(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("const int64_t n = a.numel();", "const int64_t n = a.numle();")
    found = judge(kernel)
    assert found.outcome is Outcome.COMPILE_ERROR
    line = next(number for number, text in enumerate(kernel.splitlines(), 1) if "numle" in text)
    assert f"candidate.py:{line}:" in found.message
    assert "numle" in found.message
    assert "/tmp" not in found.message


def test_text_of_an_error_does_not_decide_its_outcome(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace(
        "auto out = torch::empty_like(a);",
        'TORCH_CHECK(false, "block: attribute already exists, out of it"); auto out = torch::empty_like(a);',
    )
    found = judge(kernel)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "attribute already exists" in found.message


def test_wrong_arguments_raise_the_error_of_a_python_module(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("scaled_difference(a.contiguous(), b.contiguous())", "scaled_difference(a, 1)")
    found = judge(kernel)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "incompatible function arguments" in found.message


def test_undefined_function_is_named_in_the_error(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace(
        "#include <torch/extension.h>", "#include <torch/extension.h>\nint helper(float x);"
    )
    found = judge(kernel.replace("* 3.0f", "* helper(3.0f)"))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "helper is declared, and neither a source nor a linked library defines it" in found.message


def test_include_of_other_files_finds_nothing(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("#include <torch/extension.h>", '#include "/etc/passwd"'))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "passwd" in found.detail
    assert "root:" not in found.detail


def test_endless_compilation_is_terminated(judge: Judge) -> None:
    bomb = (
        "template <int N> struct B { static const int v = B<N - 1>::v + B<N - 2 + (N & 1)>::v; };\nint x = B<900>::v;"
    )
    kernel = ONE_SHOT.kernel.replace("torch::Tensor scaled", f"{bomb}\ntorch::Tensor scaled")
    found = judge(kernel, build_timeout_s=3, build_memory_mib=2048)
    assert found.outcome is Outcome.COMPILE_ERROR


def test_segmentation_fault_terminates_only_the_candidate(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("z[i] = (x[i] - y[i]) * 3.0f;", "((float*)8)[i] = x[i];")
    found = judge(kernel)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "in forward: return extension.scaled_difference(" in found.message
    assert judge(ONE_SHOT.kernel).outcome is Outcome.CORRECT


ROWS = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(256, 500)]


def get_init_inputs():
    return []
"""
SHARED_SCRATCH = """\
import torch
from torch.utils.cpp_extension import load_inline

source = '''
#include <torch/extension.h>
#include <cmath>
#include <vector>

torch::Tensor softmax(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t rows = x.size(0), n = x.size(1);
    std::vector<float> scratch(n);
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < n; ++i) { scratch[i] = std::exp(in[row * n + i]); sum += scratch[i]; }
        for (int64_t i = 0; i < n; ++i) out[row * n + i] = scratch[i] / sum;
    }
    return y;
}
'''
extension = load_inline("e", source, functions=["softmax"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.softmax(x)
"""


def test_threads_that_share_data_are_a_race(judge: Judge) -> None:
    found = judge(SHARED_SCRATCH, ROWS)
    assert (found.outcome, found.mismatch.causes[0].kind) == (Outcome.INCORRECT, Cause.RACE)


def test_facts_report_reachability_from_forward() -> None:
    backend = CppBackend(CppConfig())
    (kernel,) = backend.source_facts(ONE_SHOT.kernel).kernels
    assert (kernel.name, kernel.launched, kernel.reached) == ("scaled_difference", True, True)
    unused = ONE_SHOT.kernel.replace("return extension.scaled_difference(a.contiguous(), b.contiguous())", "return a")
    (kernel,) = backend.source_facts(unused).kernels
    assert not kernel.reached


def test_unused_kernel_result_is_a_hack(judge: Judge) -> None:
    decoy = ONE_SHOT.kernel.replace("return extension", "extension") + "        return a.sub(b).mul(3.0)\n"
    found = judge(decoy, kernels=("scaled_difference",))
    assert (found.outcome, [finding.rule for finding in found.findings]) == (Outcome.HACKED, ["decoy_kernels"])


LONGEST_BUILD_S = 600
"""The first Python module of a machine waits for a precompiled header, which takes minutes on a busy machine."""
WITH_UNCOMMON_ARGUMENTS = """\
import torch
from torch.utils.cpp_extension import load_inline

source = '''
#include <torch/extension.h>

torch::Tensor f(torch::Tensor x, std::array<double, 1> factor) {
    auto y = torch::zeros_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = factor[0] * x.data_ptr<float>()[i];
    return y.view({-1}).contiguous().view_as(x);
}
'''
extension = load_inline("e", source, functions=["f"], extra_cflags=["-O1"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.f(a - b, [3.0])
"""


def test_function_with_uncommon_arguments_is_built_as_a_python_module(judge: Judge) -> None:
    found = judge(WITH_UNCOMMON_ARGUMENTS, build_timeout_s=LONGEST_BUILD_S)
    assert (found.outcome, found.facts.builds[0].route) == (Outcome.CORRECT, "pybind"), found


def test_source_decoded_at_run_time_is_recorded_by_the_build(judge: Judge) -> None:
    text = (
        "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor a, torch::Tensor b) "
        "{ return at::mul(at::sub(a, b), 3.0); }"
    )
    source = (
        "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
        f"ext = load_inline('ext', {text[::-1]!r}[::-1], functions=['f'])\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n        return ext.f(a, b)\n"
    )
    found = judge(source)
    assert found.outcome is Outcome.CORRECT
    assert [piece.source for piece in found.hidden.embedded] == [text]
    assert judge(ONE_SHOT.kernel).hidden == SourceFacts()
