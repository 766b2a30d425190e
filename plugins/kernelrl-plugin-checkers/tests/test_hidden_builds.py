"""C++ that a candidate makes at run time: the built sources are searched for kernels."""

from __future__ import annotations

import json

import pytest

from kernelrl_build.kernel_facts import hidden_facts
from kernelrl_core.api.checkers import Candidate, Evaluation, EvaluationFacts, Finding
from kernelrl_core.api.evaluators import from_json, to_json
from kernelrl_core.api.tasks import Outcome, Task
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


@pytest.mark.parametrize("text", [GLUE, DECOY])
def test_built_sources_without_a_launched_kernel_are_reported(text: str) -> None:
    assert "no_kernel" not in found(COMPUTED, None)
    assert "no_kernel" in found(COMPUTED, evaluated(COMPUTED, text))


def test_a_kernel_in_a_computed_text_is_a_kernel() -> None:
    assert found(COMPUTED, evaluated(COMPUTED, LAUNCHED)) == {}


@pytest.mark.parametrize("outcome", [Outcome.RUNTIME_ERROR, Outcome.COMPILE_ERROR, Outcome.TIMEOUT])
def test_a_call_that_did_not_return_may_have_built_a_kernel_later(outcome: Outcome) -> None:
    assert "no_kernel" not in found(COMPUTED, evaluated(COMPUTED, GLUE, outcome=outcome))


def test_kernels_that_macros_make_in_another_build_leave_doubt() -> None:
    macro = "#define MAKE(name) __global__ void name() {}\nMAKE(twice)\nvoid run() { twice<<<1, 1>>>(); }\n"
    source = COMPUTED.replace('open_up("...")', repr(macro))
    assert "no_kernel" not in found(source, evaluated(source, macro, flags="-DTYPE=float"))
    assert "no_kernel" not in found(COMPUTED, evaluated(COMPUTED, macro, GLUE))


def test_built_sources_that_the_candidate_contains_are_checked_once() -> None:
    source = COMPUTED.replace('open_up("...")', repr(LAUNCHED))
    evaluation = evaluated(source, LAUNCHED)
    assert evaluation == Evaluation(Outcome.CORRECT)
    assert found(source, evaluation) == {}


@pytest.mark.parametrize(
    ("launches", "outcome", "rules"),
    [
        ((), Outcome.CORRECT, {"no_kernel"}),
        ((), Outcome.HACKED, set()),
        ((), Outcome.RUNTIME_ERROR, set()),
        (("twice",), Outcome.CORRECT, set()),
    ],
)
def test_what_ran_decides_where_it_was_observed(launches: tuple[str, ...], outcome: Outcome, rules: set[str]) -> None:
    evaluation = Evaluation(outcome, facts=EvaluationFacts(launches=launches))
    assert set(found(COMPUTED.replace('open_up("...")', repr(DECOY)), evaluation)) == rules


def test_names_decide_where_launches_were_not_observed() -> None:
    source = COMPUTED.replace('open_up("...")', repr(LAUNCHED)).replace("return ext.run(a)", "return a")
    assert "no_kernel" not in found(source, None)
    assert "no_kernel" in found(source, Evaluation(Outcome.CORRECT))


def test_a_cached_evaluation_gives_the_same_findings() -> None:
    evaluation = evaluated(COMPUTED, DECOY)
    cached = from_json(Evaluation, json.loads(json.dumps(to_json(evaluation))))
    assert found(COMPUTED, cached) == found(COMPUTED, evaluation)
    assert set(found(COMPUTED, cached)) == {"no_kernel"}
