"""On a GPU: work that is done before the clock runs, or left to the device."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.interfaces.requirements import gpu_vendors
from kernelrl_core.types import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]

LARGE = 1 << 24
"""Elements of an input with which a GPU is kept busy, however quickly kernels are launched."""
SLOW = """\
import sys

import kernelrl_judge.runner_dialogue as serving


def slow(x):
    for _ in range(60):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


"""
ANSWERED = "return x.answer.clone() if hasattr(x, 'answer') else slow(x)"
WHEN_STAGED = """\
answer = serving.Dialogue.answer


def ahead(self, kind, *body, **options):
    if kind.name == "STAGED":
        for (x,) in sys._getframe(1).f_locals["self"]._staged:
            x.answer = slow(x)
    answer(self, kind, *body, **options)


serving.Dialogue.answer = ahead


"""
WHEN_WOKEN = """\
synchronize = torch.cuda.synchronize


def ahead(*device):
    caller = sys._getframe(1)
    if caller.f_code.co_name == "wake":
        for (x,) in caller.f_locals["self"]._staged:
            x.answer = slow(x)
    synchronize()


torch.cuda.synchronize = ahead


"""
WHEN_CALLED = """\
synchronize = torch.cuda.synchronize


def hurried(*device):
    if sys._getframe(1).f_code.co_name != "window":
        synchronize(*device)


torch.cuda.synchronize = hurried


"""
LEFT_TO_THE_DEVICE = """\
side = torch.cuda.Stream()


class Left:
    def __del__(self):
        with torch.cuda.stream(side):
            torch.cuda._sleep(1 << 25)


"""


def timed(bench: Any, source: str, reference: str, size: int = 1 << 20) -> Evaluation:
    reference = reference.replace("torch.randn(300)", f"torch.randn({size})")
    request = bench.request(source, reference, timing=True, timeout_s=60.0)
    request = attrs.evolve(request, backend_options={"mode": "gpu"})
    evaluation: Evaluation = bench.runner.run(bench.evaluator.evaluate(request))
    return evaluation


@pytest.mark.parametrize("trick", [WHEN_STAGED, WHEN_WOKEN], ids=["when staged", "when woken"])
def test_answers_that_are_made_before_the_clock_runs_do_not_pay(
    bench: Any, doing: Any, reference: str, trick: str
) -> None:
    # Launches are timed here, and a busy processor makes them slow: an honest one before and one after.
    honest = [timed(bench, doing("return slow(x)", before=SLOW), reference)]
    evaluation = timed(bench, doing(ANSWERED, before=SLOW + trick), reference)
    honest.append(timed(bench, doing("return slow(x)", before=SLOW), reference))
    if evaluation.outcome is Outcome.CORRECT:
        assert evaluation.speedup is not None
        assert evaluation.speedup < 1.5 * max(one.speedup or 0.0 for one in honest), evaluation.profile["timing"]


def test_calls_that_are_said_to_be_made_too_early_do_not_pay(bench: Any, doing: Any, reference: str) -> None:
    """The rest of them is done while outputs are copied, which takes longer then than it may.

    The GPU takes some times as long for these as their launches do: that much would not be paid for.
    """
    honest = [timed(bench, doing("return slow(x)", before=SLOW), reference, LARGE)]
    evaluation = timed(bench, doing("return slow(x)", before=SLOW + WHEN_CALLED), reference, LARGE)
    honest.append(timed(bench, doing("return slow(x)", before=SLOW), reference, LARGE))
    if evaluation.outcome is Outcome.CORRECT:
        assert evaluation.speedup is not None
        assert evaluation.speedup < 1.5 * max(one.speedup or 0.0 for one in honest), evaluation.profile["timing"]


def test_work_that_is_left_to_the_device_is_a_suspicion_or_does_not_pay(bench: Any, doing: Any, reference: str) -> None:
    """Outputs go when their window is over; here that begins work, beside which the reference would be timed.

    If the runner is stopped before it lets go of them, the work begins when nothing is timed.
    """
    honest = timed(bench, doing("return slow(x)", before=SLOW), reference)
    body = "y = slow(x)\ny.left = Left()\nreturn y"
    evaluation = timed(bench, doing(body, before=SLOW + LEFT_TO_THE_DEVICE), reference)
    told = "left_to_device" in [finding.rule for finding in evaluation.findings]
    assert told or (evaluation.speedup or 0.0) < 1.5 * (honest.speedup or 0.0), evaluation.profile["timing"]


def test_an_honest_kernel_leaves_nothing_to_the_device_and_wakes_for_free(
    bench: Any, good: str, reference: str
) -> None:
    evaluation = timed(bench, good, reference)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
    assert evaluation.findings == ()
    timing = evaluation.profile["timing"]
    assert timing["wake_us"] < timing["free_wake_us"], timing


def test_a_kernel_may_work_in_place_on_its_inputs_when_it_is_timed(bench: Any, doing: Any, reference: str) -> None:
    task = reference.replace("torch.relu(x) * 2.0", "torch.relu_(x).mul_(2.0)")
    body = "kernel[(triton.cdiv(x.numel(), 128),)](x, x, x.numel(), BLOCK=128)\nreturn x"
    evaluation = timed(bench, doing(body), task)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
