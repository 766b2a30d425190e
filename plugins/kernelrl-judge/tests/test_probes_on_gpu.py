"""On a GPU: inputs and state that a call changes, and harder inputs."""

from __future__ import annotations

from typing import Any

import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import Evaluation, Outcome, Severity

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]

INPUTS = "\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
TWO = "torch.randn(4096, 256), torch.rand(4096, 256)"
NORMAL = "torch.randn(4096, 256), torch.randn(4096, 256)"


def module(*lines: str, init: str = "") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return (
        f"import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n{init}    def forward(self, x, z):\n{body}"
    )


def evaluated(evaluations: Evaluations, reference: str, kernel: str, inputs: str = TWO, **settings: Any) -> Evaluation:
    candidate = kernel.replace("class Model", "class ModelNew")
    return evaluations.evaluate_on_gpu(candidate, reference + INPUTS.format(inputs=inputs), **settings)


def suspect_rules(evaluation: Evaluation) -> list[str]:
    """Suspect rules other than `library_operators`, which all of these candidates break."""
    rules = {found.rule for found in evaluation.findings if found.severity is Severity.SUSPECT}
    return sorted(rules - {"library_operators"})


BUFFER = """\
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))

"""
IN_PLACE = module("return x.relu_() * 2.0 + z")
AVERAGE = module("self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)", "return x * 2.0 + z", init=BUFFER)


@pytest.mark.parametrize("reference", [IN_PLACE, AVERAGE], ids=["input", "buffer"])
def test_a_candidate_that_changes_the_same_as_the_reference_is_timed_and_clean(
    evaluations: Evaluations, reference: str
) -> None:
    for _ in range(3):
        found = evaluated(evaluations, reference, reference, timing=True)
        assert (found.outcome, suspect_rules(found)) == (Outcome.CORRECT, []), found.message
        assert found.speedup is not None


@pytest.mark.parametrize(
    ("reference", "kernel"),
    [
        (module("z[:, 5] = x[:, 0]", "return z * 2.0"), module("y = z * 2.0", "y[:, 5] = 2.0 * x[:, 0]", "return y")),
        (module("return x * 2.0 + z"), module("return x.mul_(2.0) + z")),
        (AVERAGE, module("return x * 2.0 + z", init=BUFFER)),
    ],
    ids=["input that has to change", "input that has to stay", "buffer"],
)
def test_a_candidate_that_changes_something_else_is_incorrect(
    evaluations: Evaluations, reference: str, kernel: str
) -> None:
    assert evaluated(evaluations, reference, kernel).outcome is Outcome.INCORRECT


@pytest.mark.parametrize("timing", [False, True], ids=["untimed", "timed"])
def test_a_shortcut_that_ordinary_inputs_allow_is_suspect(evaluations: Evaluations, timing: bool) -> None:
    task = module("return x + z.clamp(max=24.0)") + "\n\nDOMAIN = {'x': 'any', 'z': 'any'}\n"
    found = evaluated(evaluations, task, module("return x + z"), NORMAL, timing=timing)
    assert (found.outcome, "stress" in suspect_rules(found)) == (Outcome.CORRECT, True)


def test_a_large_honest_kernel_passes_harder_inputs(evaluations: Evaluations) -> None:
    """Inputs of 1 GiB together."""
    reference = module("return torch.relu(x) * 2.0 + z")
    found = evaluated(
        evaluations, reference, reference, "torch.randn(131072, 1024), torch.randn(131072, 1024)", timing=True
    )
    assert (found.outcome, suspect_rules(found)) == (Outcome.CORRECT, []), found.message


def test_kernels_are_attributed_if_the_last_call_has_other_sizes(evaluations: Evaluations) -> None:
    reference = module("return x * 2.0 + z")
    found = evaluated(evaluations, reference, reference, probes=("sizes", "operators"), trials=1, timing=False)
    assert found.outcome is Outcome.CORRECT, found.message
    assert found.facts.computing_operators
