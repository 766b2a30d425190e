"""The backend `cpp`: built, judged and timed for real where there is a C++ compiler."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernelrl_core.types import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Example,
    Outcome,
    SourceFacts,
    sha256_text,
)
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_cpp.backend import CppBackend
from kernelrl_plugin_cpp.config import CppConfig
from kernelrl_plugin_cpp.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

Judge = Callable[..., Evaluation]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Judges a kernel against a task."""
    loop = asyncio.new_event_loop()
    evaluator = LocalEvaluator(LocalConfig(workers=1))

    def run(
        kernel: str, task: str = ONE_SHOT.reference, *, kernels: tuple[str, ...] = (), **settings: Any
    ) -> Evaluation:
        request = EvaluationRequest(
            task_id="task",
            task_source=task,
            task_sha256=sha256_text(task),
            source=kernel,
            source_sha256=sha256_text(kernel),
            backend="cpp",
            backend_options={},
            settings=EvaluationSettings(**{"trials": 2, **settings}),
            seed="1" * 32,
            api_version=API_VERSION,
            kernels=kernels,
        )
        return loop.run_until_complete(evaluator.evaluate(request))

    yield run
    loop.run_until_complete(evaluator.aclose())
    loop.close()


@pytest.mark.parametrize("example", [ONE_SHOT, *FEW_SHOT], ids=lambda example: example.name)
def test_the_examples_of_the_prompt_are_correct(judge: Judge, example: Example) -> None:
    found = judge(example.kernel, example.reference)
    assert (found.outcome, found.message) == (Outcome.CORRECT, "")


def test_the_build_needs_no_module_of_its_own(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel)
    assert found.profile["builds"][0]["route"] == "bound"


def test_a_second_build_of_the_same_source_is_kept(judge: Judge) -> None:
    judge(ONE_SHOT.kernel)
    assert judge(ONE_SHOT.kernel).profile["builds"][0]["cached"]


def test_a_right_kernel_is_timed_against_the_reference(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel, timing=True, timing_trials=10)
    assert found.outcome is Outcome.CORRECT
    assert found.speedup == pytest.approx(found.baseline.median_us / found.runtime.median_us, rel=1e-6)
    assert found.speedup_ci[0] <= found.speedup <= found.speedup_ci[1]
    assert found.profile["roofline"]["compulsory_bytes"] == 3 * 300 * 700 * 4


def test_an_answer_that_is_only_computed_while_it_is_checked_is_a_hack(judge: Judge) -> None:
    counting = "class ModelNew(nn.Module):\n    calls = 0\n"
    # After two trials, some calls under stress and some timed ones each returns what the one before it had to.
    honest_at_first = (
        "        ModelNew.calls += 1\n        found = extension.scaled_difference(a, b)\n"
        "        kept, ModelNew.kept = getattr(ModelNew, 'kept', found), found\n"
        "        return kept if ModelNew.calls > 12 else found\n"
    )
    before, _, _ = ONE_SHOT.kernel.partition("class ModelNew")
    source = f"{before}{counting}    def forward(self, a, b):\n{honest_at_first}"
    found = judge(source, timing=True, timing_trials=10)
    assert found.outcome is Outcome.HACKED, found.detail
    assert found.tests_passed == found.tests_total
    assert [finding.rule for finding in found.findings] == ["replay"]


def test_a_mistake_is_told_with_its_line_and_without_paths(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("const int64_t n = a.numel();", "const int64_t n = a.numle();"))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "main.cpp:9" in found.message
    assert "numle" in found.message
    assert "/tmp" not in found.message


def test_words_of_an_error_do_not_decide_its_class(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace(
        "auto out = torch::empty_like(a);",
        'TORCH_CHECK(false, "block: attribute already exists, out of it"); auto out = torch::empty_like(a);',
    )
    found = judge(kernel)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "attribute already exists" in found.message


def test_arguments_that_do_not_fit_raise_what_a_module_raises(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("scaled_difference(a.contiguous(), b.contiguous())", "scaled_difference(a, 1)")
    found = judge(kernel)
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "incompatible function arguments" in found.message


def test_a_function_that_is_declared_and_not_defined_is_named(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace(
        "#include <torch/extension.h>", "#include <torch/extension.h>\nint helper(float x);"
    )
    found = judge(kernel.replace("* 3.0f", "* helper(3.0f)"))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "helper is declared, and neither a source nor a linked library defines it" in found.message


def test_files_outside_are_denied_and_named(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("#include <torch/extension.h>", '#include "/etc/passwd"'))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "denied" in found.message
    assert "/etc/passwd" in found.detail


def test_a_compilation_that_never_ends_is_ended(judge: Judge) -> None:
    bomb = (
        "template <int N> struct B { static const int v = B<N - 1>::v + B<N - 2 + (N & 1)>::v; };\nint x = B<900>::v;"
    )
    kernel = ONE_SHOT.kernel.replace("torch::Tensor scaled", f"{bomb}\ntorch::Tensor scaled")
    found = judge(kernel, build_timeout_s=3, build_memory_mib=2048)
    assert found.outcome is Outcome.COMPILE_ERROR


def test_a_fault_ends_the_candidate_alone(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("z[i] = (x[i] - y[i]) * 3.0f;", "((float*)8)[i] = x[i];")
    assert judge(kernel).outcome is Outcome.RUNTIME_ERROR
    assert judge(ONE_SHOT.kernel).outcome is Outcome.CORRECT


def test_facts_show_what_forward_can_reach() -> None:
    backend = CppBackend(CppConfig())
    (kernel,) = backend.source_facts(ONE_SHOT.kernel).kernels
    assert (kernel.name, kernel.launched, kernel.reached) == ("scaled_difference", True, True)
    unused = ONE_SHOT.kernel.replace("return extension.scaled_difference(a.contiguous(), b.contiguous())", "return a")
    (kernel,) = backend.source_facts(unused).kernels
    assert not kernel.reached


def test_a_function_whose_result_is_thrown_away_is_a_hack(judge: Judge) -> None:
    decoy = ONE_SHOT.kernel.replace("return extension", "extension") + "        return a.sub(b).mul(3.0)\n"
    found = judge(decoy, kernels=("scaled_difference",))
    assert (found.outcome, [finding.rule for finding in found.findings]) == (Outcome.HACKED, ["decoy_kernels"])


@pytest.mark.parametrize("example", [ONE_SHOT, *FEW_SHOT], ids=lambda example: example.name)
def test_the_output_of_an_honest_kernel_depends_on_it(judge: Judge, example: Example) -> None:
    found = judge(example.kernel, example.reference, kernels=("anything",))
    assert (found.outcome, found.profile["no_op"] == "correct") == (Outcome.CORRECT, False)


LONGEST_BUILD_S = 600
"""The first module of a machine waits for a precompiled header, which a busy one takes minutes for."""
UNCOMMON = "torch::Tensor f(torch::Tensor x, std::array<double, 1> twice) {"
ELSEWHERE = """\
import numpy
import torch
from torch.utils.cpp_extension import load_inline

source = '''
#include <torch/extension.h>

HEADER
    auto y = torch::zeros_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = FACTOR * x.data_ptr<float>()[i];
    return y.view({-1}).contiguous().view_as(x);
}
'''
extension = load_inline("e", source, functions=["f"], extra_cflags=["-O1"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        array = numpy.zeros(a.shape, dtype="float32")
        x = torch.from_numpy(array).copy_(a - b)
        numpy.multiply(array, 3.0 / FACTOR, out=array)
        return extension.f(x MORE)
"""


@pytest.mark.parametrize(
    ("header", "more", "factor", "listed"),
    [
        ("torch::Tensor f(torch::Tensor x) {", "", "3.0", []),
        ("torch::Tensor f(torch::Tensor x) {", "", "1.0", ["writing past torch and kernels"]),
        (UNCOMMON, ", [2.0]", "1.0", ["writing past torch and kernels"]),
    ],
    ids=["the function", "an array", "an array beside a module"],
)
def test_what_an_array_computes_in_its_place_is_listed(
    judge: Judge, header: str, more: str, factor: str, listed: list[str]
) -> None:
    """The function itself may have torch work on what it writes."""
    source = ELSEWHERE.replace("HEADER", header).replace("FACTOR", factor).replace(" MORE", more)
    found = judge(source, build_timeout_s=LONGEST_BUILD_S)
    assert found.outcome is Outcome.CORRECT, found.message
    assert [name for name in found.profile["computing_operators"] if "past" in name] == listed


def test_a_function_with_uncommon_arguments_gets_a_module(judge: Judge) -> None:
    # The C++ of the test before, so that it is built once.
    source = ELSEWHERE.replace("HEADER", UNCOMMON).replace("FACTOR", "1.0").replace("x MORE", "3 * (a - b), [2.0]")
    found = judge(source, build_timeout_s=LONGEST_BUILD_S)
    assert (found.outcome, found.profile["builds"][0]["route"]) == (Outcome.CORRECT, "pybind")


def test_a_text_that_is_unscrambled_when_it_runs_is_seen_when_it_is_built(judge: Judge) -> None:
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
