"""Inputs and state that a call changes, and the tensors that it may write to."""

from __future__ import annotations

import pytest
import torch
from shared_evaluations import KERNEL, Evaluations

from kernelrl_core.api.evaluators import Evaluation, Outcome, Severity

HEAD = """\
import torch
import torch.nn as nn


class Model(nn.Module):
"""
TAIL = """

def get_inputs():
    return [torch.randn(4, 8), torch.randn(4, 6, 8)]


def get_init_inputs():
    return []
"""
BUFFER = """\
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

"""
NORM = """\
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

"""


def module(*lines: str, init: str = "") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEAD}{init}    def forward(self, x, cache):\n{body}"


def evaluated(evaluations: Evaluations, reference: str, kernel: str) -> Evaluation:
    return evaluations.evaluate(kernel.replace("class Model", "class ModelNew"), reference + TAIL, trials=3)


WRITES = module("cache[:, 5] = x", "return cache.sum(1)")


def test_an_input_that_the_reference_writes_to_has_to_be_written_to(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, WRITES, WRITES).outcome is Outcome.CORRECT
    found = evaluated(evaluations, WRITES, module("return cache[:, :5].sum(1) + x"))
    assert found.outcome is Outcome.INCORRECT
    assert found.message.startswith("Input [1] does not hold after the call what the reference leaves there in 32 of ")


def test_an_input_that_the_reference_does_not_write_to_must_stay_unchanged(evaluations: Evaluations) -> None:
    found = evaluated(evaluations, WRITES, module("cache[:, 5] = x", "y = cache.sum(1)", "x.zero_()", "return y"))
    assert found.message == "Input [0] was changed by the call. The reference leaves its inputs as they are."


def test_an_input_that_the_reference_changes_in_place_and_returns_may_stay_unchanged(evaluations: Evaluations) -> None:
    reference = module("return torch.relu_(x)")
    assert evaluated(evaluations, reference, module("return torch.relu(x)")).outcome is Outcome.CORRECT
    assert evaluated(evaluations, reference, reference).outcome is Outcome.CORRECT
    assert (
        evaluated(evaluations, reference, module("y = torch.relu(x)", "x.zero_()", "return y")).outcome
        is Outcome.INCORRECT
    )


UPDATES = ("self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)", "return x + self.average")
AVERAGES = module(*UPDATES, init=BUFFER)


def test_state_that_the_reference_changes_has_to_be_changed(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, AVERAGES, AVERAGES).outcome is Outcome.CORRECT
    found = evaluated(evaluations, AVERAGES, module("return x + (0.9 * self.average + 0.1 * x.mean(0))", init=BUFFER))
    assert found.message.startswith(
        "State average does not hold after the call what the reference leaves there in 8 of "
    )


def test_state_that_is_changed_may_be_returned(evaluations: Evaluations) -> None:
    itself = module("self.average.add_(x.mean(0))", "return self.average", init=BUFFER)
    found = evaluated(evaluations, itself, itself)
    assert (found.outcome, found.findings) == (Outcome.CORRECT, ())


def test_a_candidate_without_the_state_is_suspect(evaluations: Evaluations) -> None:
    reference = module(UPDATES[0], "return x * 2.0", init=BUFFER)
    found = evaluated(evaluations, reference, module("return x * 2.0"))
    assert found.outcome is Outcome.CORRECT
    assert ("effects", Severity.SUSPECT) in [(finding.rule, finding.severity) for finding in found.findings]


def test_a_norm_in_training_need_not_update_its_running_statistics(evaluations: Evaluations) -> None:
    batch = "return nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"
    found = evaluated(evaluations, module("return self.norm(x)", init=NORM), module(batch, init=NORM))
    assert (found.outcome, found.findings) == (Outcome.CORRECT, ())


def rules(found: Evaluation) -> list[str]:
    return [finding.rule for finding in found.findings]


SHIFTED = """\
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(8))
        self.shift = nn.Parameter(torch.zeros(8))

"""


def test_state_that_a_kernel_lacks_is_not_matched_with_a_parameter(evaluations: Evaluations) -> None:
    reference = module("self.calls += 1.0", "return x + self.shift", init=SHIFTED)
    kernel = module(
        "return x + self.bias", init=BUFFER.replace('register_buffer("average", torch', "bias = nn.Parameter(torch")
    )
    found = evaluated(evaluations, reference, kernel)
    assert (found.outcome, rules(found)) == (Outcome.CORRECT, ["effects"])
    assert "calls" in found.findings[0].evidence


@pytest.mark.parametrize(
    "given", ["torch.randn(8, 4).t()", "torch.randn(4, 16)[:, ::2]", "torch.randn(4, 1).expand(4, 8)"]
)
def test_inputs_have_the_strides_of_the_task_in_trials_and_as_harder_inputs(
    evaluations: Evaluations, given: str
) -> None:
    tail = TAIL.replace("torch.randn(4, 8)", given)
    wanted = eval(given, {"torch": torch}).stride()
    kernel = module(f"assert x.stride() == {wanted}", "return torch.relu(x), x").replace("Model", "ModelNew")
    found = evaluations.evaluate(kernel, module("return torch.relu(x), x") + tail, trials=3)
    assert (found.message, rules(found)) == ("", [])
    assert found.facts.stress.startswith("passed")


STORE = "tl.store(y_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=mask)"


def test_an_interpreted_kernel_that_stores_outside_the_tensors_of_its_launch_fails(evaluations: Evaluations) -> None:
    found = evaluations.evaluate(KERNEL.replace(STORE, STORE.replace(", mask=mask", "")))
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "84 of 128 elements are stored out of bounds of the tensors passed to this launch" in found.message


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("(tl.load(y_ptr).to(tl.pointer_type(tl.float32)) + offs", "torch.tensor([y.data_ptr()])"),
        ("(y_ptr - 100 + offs", "y[100:]"),
    ],
)
def test_stores_through_an_address_and_before_a_view_are_permitted(
    evaluations: Evaluations, place: str, given: str
) -> None:
    kernel = KERNEL.replace("tl.store(y_ptr + offs", f"tl.store{place}").replace("](x, y, n", f"](x, {given}, n")
    assert evaluations.evaluate(kernel).outcome is Outcome.CORRECT


def test_state_is_read_without_calling_the_module(evaluations: Evaluations) -> None:
    kernel = module("self.last = x", "return x + cache.sum(1)", init=BUFFER) + (
        "\n    def state_dict(self, *given, **named):\n"
        "        if hasattr(self, 'last'):\n            self.average.mul_(0.9).add_(self.last.mean(0), alpha=0.1)\n"
        "        return super().state_dict(*given, **named)\n"
    )
    reference = module(UPDATES[0], "return x + cache.sum(1)", init=BUFFER)
    assert evaluated(evaluations, reference, kernel).message.startswith("State average does not hold after the call")
