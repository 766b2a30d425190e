"""What a call does beside returning outputs: inputs and state that it changes, and memory that its outputs share."""

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
    found = judged(bench, AVERAGES, module("return x + 0.1 * x.mean(0)"))
    assert found.outcome is Outcome.CORRECT
    assert ("effects", Severity.SUSPECT) in [(finding.rule, finding.severity) for finding in found.findings]


def test_running_statistics_of_a_norm_in_training_may_be_left_out(bench: Any) -> None:
    batch = "return nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)"
    found = judged(bench, module("return self.norm(x)", init=NORM), module(batch, init=NORM))
    assert (found.outcome, found.findings) == (Outcome.CORRECT, ())


TWO = module("h = torch.relu(x)", "return h, h.clone()")
PARTS = module("h = torch.cat([x, x + 1.0], 1)", "return h[:, :8].clone(), h[:, 8:].clone()")


@pytest.mark.parametrize(
    ("reference", "kernel", "outcome"),
    [
        (TWO, TWO, Outcome.CORRECT),
        (TWO, module("h = torch.relu(x)", "return h, h"), Outcome.INCORRECT),
        (TWO, module("h = torch.relu(x)", "return h, h.view(8, 4).view(4, 8)"), Outcome.INCORRECT),
        (module("h = torch.relu(x)", "return h, h"), module("h = torch.relu(x)", "return h, h"), Outcome.CORRECT),
        (module("h = torch.relu(x)", "return h, h"), TWO, Outcome.CORRECT),
        (module("return x.relu(), x.clone()"), module("return x.relu(), x"), Outcome.INCORRECT),
        (module("return x.relu(), x"), module("return x.relu(), x"), Outcome.CORRECT),
        # Columns of one block have no element in common.
        (PARTS, module("h = torch.cat([x, x + 1.0], 1)", "return h[:, :8], h[:, 8:]"), Outcome.CORRECT),
        (PARTS, PARTS, Outcome.CORRECT),
    ],
)
def test_outputs_share_memory_only_where_those_of_the_reference_do(
    bench: Any, reference: str, kernel: str, outcome: Outcome
) -> None:
    assert judged(bench, reference, kernel).outcome is outcome


CLAMPS = module("x.clamp_(-4.0)", "return x * 2.0 + cache.sum(1)")


def rules(found: Evaluation) -> list[str]:
    return [finding.rule for finding in found.findings]


def test_what_the_reference_changes_in_harsh_inputs_alone_may_be_changed(bench: Any) -> None:
    assert (judged(bench, CLAMPS, CLAMPS).outcome, rules(judged(bench, CLAMPS, CLAMPS))) == (Outcome.CORRECT, [])
    apart = module("return x.clamp(-4.0) * 2.0 + cache.sum(1)")
    found = judged(bench, CLAMPS, apart)
    assert (found.outcome, rules(found)) == (Outcome.CORRECT, ["stress"])
    assert "Input [0] does not hold after the call what the reference leaves there." in found.findings[0].evidence


COUNTER = """\
    def __init__(self):
        super().__init__()
        self.register_buffer("overflows", torch.zeros((), dtype=torch.long))

"""


def test_state_that_harsh_inputs_alone_change_has_to_be_changed(bench: Any) -> None:
    reference = module("self.overflows += (x.abs() > 100.0).sum()", "return x * 2.0", init=COUNTER)
    assert rules(judged(bench, reference, reference)) == []
    found = judged(bench, reference, module("return x * 2.0", init=COUNTER))
    assert (found.outcome, rules(found)) == (Outcome.CORRECT, ["stress"])
    assert "State overflows does not hold" in found.findings[0].evidence
    assert rules(judged(bench, reference, module("return x * 2.0"))) == ["effects"]


UNSAVED = BUFFER.replace("torch.zeros(8)", "torch.zeros(8), persistent=False")


def test_a_buffer_that_is_not_saved_is_looked_at_where_the_kernel_has_it(bench: Any) -> None:
    reference = module("self.average.copy_(x.mean(0))", "return x * 2.0", init=UNSAVED)
    assert rules(judged(bench, reference, reference)) == []
    assert "effects" in rules(judged(bench, reference, module("return x * 2.0", init=UNSAVED)))
    assert rules(judged(bench, reference, module("return x * 2.0"))) == []
    read = module("self.average += 1.0", "return x * self.average", init=UNSAVED)
    assert rules(judged(bench, read, read)) == []
    assert rules(judged(bench, read, module("return x * 1.0"))) == ["effects"]


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


def test_an_output_lies_in_a_parameter_only_where_that_of_the_reference_does(bench: Any) -> None:
    itself = module("return x * self.weight, self.weight", init=WEIGHT)
    assert judged(bench, itself, itself).outcome is Outcome.CORRECT
    found = judged(bench, SCALED, itself)
    assert found.outcome is Outcome.INCORRECT
    assert "lies in that of a parameter or buffer" in found.message


PREPARES = (
    "if not hasattr(self, 'ready'):",
    "    {} = nn.functional.normalize(self.weight.detach(), dim=0)",
    "    self.ready = True",
    "return x * {}",
)


def test_what_is_prepared_of_a_parameter_lies_elsewhere(bench: Any) -> None:
    reference = module("return x * nn.functional.normalize(self.weight, dim=0)", init=WEIGHT)
    for place, expected in (("self.packed", []), ("self.weight.data", ["effects"])):
        found = judged(bench, reference, module(*PREPARES, init=WEIGHT).replace("{}", place))
        assert (found.outcome, rules(found)) == (Outcome.CORRECT, expected)


@pytest.mark.parametrize(
    ("reference", "kernel", "expected"),
    [
        ("return torch.relu(x)", "return torch.clamp(x, min=0.0, out=self.out)", ["overwritten"]),
        ("return torch.relu(x)", "return torch.clamp(x, min=0.0, out=self.out).clone()", []),
        ("return torch.relu(x)", "return torch.clamp(x, min=0.0, out=self.ready.pop())", ["overwritten"]),
        ("return torch.clamp(x, min=0.0, out=self.out)", "return torch.clamp(x, min=0.0, out=self.out)", []),
        ("return torch.ones(4, 8)", "return self.out.fill_(1.0)", ["overwritten"]),
        ("return torch.ones(4, 8)", "return torch.ones(4, 8)", []),
        ("return torch.relu_(x)", "return torch.relu_(x)", []),
    ],
)
def test_results_of_earlier_calls_outlive_later_ones(
    bench: Any, reference: str, kernel: str, expected: list[str]
) -> None:
    place = (
        "if not hasattr(self, 'out'):",
        "    self.out, self.ready = torch.empty_like(x), [torch.empty_like(x) for _ in range(99)]",
    )
    found = judged(bench, module(*place, reference), module(*place, kernel))
    assert (found.outcome, rules(found)) == (Outcome.CORRECT, expected)


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


@pytest.mark.parametrize(
    ("lines", "outcome", "expected"),
    [
        (("y = torch.relu(x)", "before.fill_(1.0)", "self.before = y", "return y"), Outcome.CORRECT, ["overwritten"]),
        (("y = torch.relu(x)", "self.before = y.clone()", "return y"), Outcome.CORRECT, []),
        (("y = torch.relu(x)", "before.fill_(1.0)", "self.before = y.clone()", "return y"), Outcome.CORRECT, []),
        (
            ("if before.data_ptr() != x.data_ptr():", "    before.fill_(1.0)", "self.before = x", "return x.relu()"),
            Outcome.INCORRECT,
            [],
        ),
    ],
)
def test_later_calls_leave_results_and_inputs_of_earlier_ones_as_they_are(
    bench: Any, lines: tuple[str, ...], outcome: Outcome, expected: list[str]
) -> None:
    found = judged(bench, module("return torch.relu(x)"), module(*BEFORE, *lines))
    assert (found.outcome, rules(found)) == (outcome, expected)


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


@pytest.mark.parametrize(
    ("before", "forward", "rule"),
    [
        ("torch.set_grad_enabled(False)", "return torch.relu(x)", "process_settings"),
        ("", "x.neg_(); y = torch.relu(-x); x.neg_(); return y", "input_borrowed"),
        ("", "print('x' * 30_000); return torch.relu(x)", "prints"),
        ("", "return torch.relu(x)", None),
    ],
)
def test_what_a_call_leaves_behind_is_told_of(bench: Any, before: str, forward: str, rule: str | None) -> None:
    kernel = module(forward).replace("class Model", f"{before}\n\n\nclass Model")
    found = judged(bench, module("return torch.relu(x)"), kernel)
    assert found.outcome is Outcome.CORRECT
    rules = {finding.rule for finding in found.findings}
    assert rules & {"process_settings", "input_borrowed", "prints"} == ({rule} if rule else set())
