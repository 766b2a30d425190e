"""On a GPU: what a call changes and shares, harder inputs, and windows of calls."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.interfaces.requirements import gpu_vendors
from kernelrl_core.types import Evaluation, Outcome, Severity

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


def judged(bench: Any, reference: str, kernel: str, inputs: str = TWO, **settings: Any) -> Evaluation:
    kernel = kernel.replace("class Model", "class ModelNew")
    request = bench.request(kernel, reference + INPUTS.format(inputs=inputs), **settings)
    request = attrs.evolve(request, backend_options={"mode": "gpu"})
    evaluation: Evaluation = bench.runner.run(bench.evaluator.evaluate(request))
    return evaluation


def suspect_rules(evaluation: Evaluation) -> list[str]:
    """Torch computes in all of these candidates, which is suspect by itself."""
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
def test_who_changes_what_the_reference_changes_is_timed_and_clean(bench: Any, reference: str) -> None:
    for _ in range(3):
        found = judged(bench, reference, reference, timing=True)
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
def test_who_leaves_something_else_behind_is_incorrect(bench: Any, reference: str, kernel: str) -> None:
    assert judged(bench, reference, kernel).outcome is Outcome.INCORRECT


@pytest.mark.parametrize("timing", [False, True], ids=["untimed", "timed"])
def test_a_shortcut_that_ordinary_inputs_allow_is_suspect(bench: Any, timing: bool) -> None:
    found = judged(bench, module("return x + z.clamp(max=24.0)"), module("return x + z"), NORMAL, timing=timing)
    assert (found.outcome, "stress" in suspect_rules(found)) == (Outcome.CORRECT, True)


def test_harder_inputs_leave_large_honest_kernels_alone(bench: Any) -> None:
    """Inputs of 1 GiB together."""
    reference = module("return torch.relu(x) * 2.0 + z")
    found = judged(bench, reference, reference, "torch.randn(131072, 1024), torch.randn(131072, 1024)", timing=True)
    assert (found.outcome, suspect_rules(found)) == (Outcome.CORRECT, []), found.message
