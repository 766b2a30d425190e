"""What a call does beside returning outputs: inputs and state that it changes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelrl_core.types import Evaluation, Outcome, Severity  # noqa: E402

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


def judged(bench: Any, reference: str, kernel: str) -> Evaluation:
    found: Evaluation = bench.judge(kernel.replace("class Model", "class ModelNew"), reference + TAIL, trials=3)
    return found


WRITES = module("cache[:, 5] = x", "return cache.sum(1)")


def test_an_input_that_the_reference_writes_to_has_to_be_written_to(bench: Any) -> None:
    assert judged(bench, WRITES, WRITES).outcome is Outcome.CORRECT
    found = judged(bench, WRITES, module("return cache[:, :5].sum(1) + x"))
    assert found.outcome is Outcome.INCORRECT
    assert found.message == "Input [1] does not hold after the call what the reference leaves there."


def test_an_input_beside_one_that_the_reference_writes_to_stays_as_it_is(bench: Any) -> None:
    found = judged(bench, WRITES, module("cache[:, 5] = x", "y = cache.sum(1)", "x.zero_()", "return y"))
    assert found.message == "Input [0] was changed by the call. The reference leaves its inputs as they are."


def test_an_input_that_the_reference_works_on_in_place_and_returns_may_stay_as_it_was(bench: Any) -> None:
    reference = module("return torch.relu_(x)")
    assert judged(bench, reference, module("return torch.relu(x)")).outcome is Outcome.CORRECT
    assert judged(bench, reference, reference).outcome is Outcome.CORRECT
    assert judged(bench, reference, module("y = torch.relu(x)", "x.zero_()", "return y")).outcome is Outcome.INCORRECT


UPDATES = ("self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)", "return x + self.average")
AVERAGES = module(*UPDATES, init=BUFFER)


def test_state_that_the_reference_changes_has_to_be_changed(bench: Any) -> None:
    assert judged(bench, AVERAGES, AVERAGES).outcome is Outcome.CORRECT
    found = judged(bench, AVERAGES, module("return x + (0.9 * self.average + 0.1 * x.mean(0))", init=BUFFER))
    assert found.message.startswith("State average does not hold after the call what the reference leaves there.")


def test_state_that_is_changed_may_be_returned(bench: Any) -> None:
    itself = module("self.average.add_(x.mean(0))", "return self.average", init=BUFFER)
    found = judged(bench, itself, itself)
    assert (found.outcome, found.findings) == (Outcome.CORRECT, ())


def test_who_has_no_such_state_is_suspect(bench: Any) -> None:
    reference = module(UPDATES[0], "return x * 2.0", init=BUFFER)
    found = judged(bench, reference, module("return x * 2.0"))
    assert found.outcome is Outcome.CORRECT
    assert ("effects", Severity.SUSPECT) in [(finding.rule, finding.severity) for finding in found.findings]


def test_running_statistics_of_a_norm_in_training_may_be_left_out(bench: Any) -> None:
    batch = "return nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"
    found = judged(bench, module("return self.norm(x)", init=NORM), module(batch, init=NORM))
    assert (found.outcome, found.findings) == (Outcome.CORRECT, ())


TWO = module("h = torch.relu(x)", "return h, h.clone()")
PARTS = module("h = torch.cat([x, x + 1.0], 1)", "return h[:, :8].clone(), h[:, 8:].clone()")


def rules(found: Evaluation) -> list[str]:
    return [finding.rule for finding in found.findings]


UNSAVED = BUFFER.replace("torch.zeros(8)", "torch.zeros(8), persistent=False")


SHIFTED = """\
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(8))
        self.shift = nn.Parameter(torch.zeros(8))

"""


def test_changing_state_that_a_kernel_lacks_is_not_taken_for_another(bench: Any) -> None:
    reference = module("self.calls += 1.0", "return x + self.shift", init=SHIFTED)
    kernel = module(
        "return x + self.bias", init=BUFFER.replace('register_buffer("average", torch', "bias = nn.Parameter(torch")
    )
    found = judged(bench, reference, kernel)
    assert (found.outcome, rules(found)) == (Outcome.CORRECT, ["effects"])
    assert "calls" in found.findings[0].evidence


WEIGHT = """\
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

"""
SCALED = module("return x * self.weight, self.weight.clone()", init=WEIGHT)


PREPARES = (
    "if not hasattr(self, 'ready'):",
    "    {} = nn.functional.normalize(self.weight.detach(), dim=0)",
    "    self.ready = True",
    "return x * {}",
)


@pytest.mark.parametrize(
    "given", ["torch.randn(8, 4).t()", "torch.randn(4, 16)[:, ::2]", "torch.randn(4, 1).expand(4, 8)"]
)
def test_inputs_have_the_strides_of_the_task_in_trials_and_under_stress(bench: Any, given: str) -> None:
    tail = TAIL.replace("torch.randn(4, 8)", given)
    wanted = eval(given, {"torch": torch}).stride()
    kernel = module(f"assert x.stride() == {wanted}", "return torch.relu(x), x").replace("Model", "ModelNew")
    found = bench.judge(kernel, module("return torch.relu(x), x") + tail, trials=3)
    assert (found.message, rules(found)) == ("", [])
    assert found.profile["stress"].startswith("passed")


BEFORE = ("before = getattr(self, 'before', None)", "before = before if before is not None else torch.empty_like(x)")


STORE = "tl.store(y_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=mask)"


def test_stores_of_interpreted_kernels_lie_in_the_tensors_of_their_launch(bench: Any, good: str) -> None:
    found = bench.judge(good.replace(STORE, STORE.replace(", mask=mask", "")))
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert "84 of 128 elements are stored out of bounds of the tensors passed to this launch" in found.message


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("(tl.load(y_ptr).to(tl.pointer_type(tl.float32)) + offs", "torch.tensor([y.data_ptr()])"),
        ("(y_ptr - 100 + offs", "y[100:]"),
    ],
)
def test_stores_may_lie_at_an_address_and_before_a_view(bench: Any, good: str, place: str, given: str) -> None:
    kernel = good.replace("tl.store(y_ptr + offs", f"tl.store{place}").replace("](x, y, n", f"](x, {given}, n")
    assert bench.judge(kernel).outcome is Outcome.CORRECT


def test_state_is_looked_at_without_asking_the_module(bench: Any) -> None:
    kernel = module("self.last = x", "return x + cache.sum(1)", init=BUFFER) + (
        "\n    def state_dict(self, *given, **named):\n"
        "        if hasattr(self, 'last'):\n            self.average.mul_(0.9).add_(self.last.mean(0), alpha=0.1)\n"
        "        return super().state_dict(*given, **named)\n"
    )
    reference = module(UPDATES[0], "return x + cache.sum(1)", init=BUFFER)
    assert judged(bench, reference, kernel).message.startswith("State average does not hold after the call")
