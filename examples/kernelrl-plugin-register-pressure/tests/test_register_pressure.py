"""Contracts, scores and findings, with reports worked out by hand."""

import pytest
from kernelrl_testing.contracts import CheckerContract, RewardContract
from kernelrl_testing.values import make_candidate, make_evaluation, make_task, make_turn

from kernelrl_core.api.checkers import CompiledKernel, Outcome
from kernelrl_core.api.rewards import Turn
from kernelrl_plugin_register_pressure.checker import RegisterLimit
from kernelrl_plugin_register_pressure.options import RegisterLimitConfig, RegisterPressureConfig
from kernelrl_plugin_register_pressure.reward import RegisterPressure

LIMITED = 'KERNEL = """\n__global__ void __launch_bounds__(1024, 2) add(float* x) {}\n"""\n'
SMALL = CompiledKernel("small", 32)
LARGE = CompiledKernel("large", 160)
SPILLING = CompiledKernel("spilling", 32, spill_stores_bytes=48, spill_loads_bytes=40)


def compiled(*kernels: CompiledKernel, outcome: Outcome = Outcome.CORRECT) -> Turn:
    return make_turn(outcome, evaluation=make_evaluation(outcome, kernels=kernels))


class TestReward(RewardContract):
    component = "register_pressure"

    def turns(self) -> tuple[Turn, ...]:
        return (*super().turns(), *(compiled(kernel) for kernel in (SMALL, LARGE, SPILLING)))


class TestChecker(CheckerContract):
    component = "register_limit"
    sources = (LIMITED,)


@pytest.mark.parametrize(
    ("kernels", "score"),
    [
        ((SMALL,), 1.0),
        ((LARGE,), 95 / 191),  # (255 - 160) / (255 - 64)
        ((SPILLING,), 0.25),  # 1 - 48 / 64
        ((SMALL, LARGE), 95 / 191),
        ((CompiledKernel("full", 255, spill_stores_bytes=8),), 0.0),
        ((), 0.0),
    ],
)
def test_the_worst_kernel_decides(kernels: tuple[CompiledKernel, ...], score: float) -> None:
    assert RegisterPressure(RegisterPressureConfig()).score(compiled(*kernels)) == pytest.approx(score)


def test_an_incorrect_kernel_gets_nothing() -> None:
    assert RegisterPressure(RegisterPressureConfig()).score(compiled(SMALL, outcome=Outcome.INCORRECT)) == 0.0


def test_a_limit_that_causes_spills_is_found() -> None:
    checker = RegisterLimit(RegisterLimitConfig())
    evaluation = make_evaluation(kernels=(SMALL, SPILLING))
    (finding,) = checker.check(make_candidate(LIMITED, "cuda"), make_task(), evaluation)
    assert (finding.rule, finding.line) == ("register_limit", 2)
    assert finding.evidence == "kernel spilling spills 48 bytes per thread; line 2 limits its registers"


@pytest.mark.parametrize(
    ("source", "kernel"), [("x = 1\n", SPILLING), (LIMITED, SMALL), (LIMITED, CompiledKernel("a", 32, 16))]
)
def test_no_finding_without_a_limit_or_without_many_spills(source: str, kernel: CompiledKernel) -> None:
    evaluation = make_evaluation(kernels=(kernel,))
    assert not RegisterLimit(RegisterLimitConfig()).check(make_candidate(source, "cuda"), make_task(), evaluation)


def test_the_source_alone_decides_nothing() -> None:
    assert not RegisterLimit(RegisterLimitConfig()).check(make_candidate(LIMITED, "cuda"), make_task(), None)
