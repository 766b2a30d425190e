"""Text of the formatter `profile`, with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.checkers import CompiledKernel, DeviceKernel, EvaluationFacts, Roofline
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_feedback.config import ProfileConfig
from kernelrl_plugin_feedback.profiled import Profiled
from kernelrl_plugin_feedback.structured import Structured
from kernelrl_testing.core import extract
from kernelrl_testing.values import make_evaluation, make_reply, make_runtime, make_turn

# 84 MB at 4,200 GB/s take 20 us. In 52 us that is 1,615 GB/s: 38 % of the ceiling, 2.6 times the minimum time.
MEMORY = Roofline(
    compulsory_bytes=84e6,
    flops=0.0,
    bandwidth_gb_s=4200.0,
    tflops=50.0,
    floor_us=20.0,
    achieved_bandwidth_gb_s=84e6 / 52e-6 / 1e9,
    bandwidth_share=20 / 52,
    achieved_tflops=0.0,
    flop_share=0.0,
)


def turn(
    facts: EvaluationFacts = EvaluationFacts(),  # noqa: B008
    *,
    outcome: Outcome = Outcome.CORRECT,
    median_us: float = 52.0,
    own_kernel_share: float | None = None,
    kernels: tuple[CompiledKernel, ...] = (),
) -> Turn:
    runtime = make_runtime(median_us)
    reply = "```python\nclass ModelNew:\n    pass\n```"
    return make_turn(
        outcome,
        reply=make_reply(reply),
        extraction=extract(reply, stop_reason="stop", backend="cuda"),
        evaluation=make_evaluation(
            outcome,
            runtime=runtime,
            baseline=runtime,
            speedup=1.0,
            facts=facts,
            own_kernel_share=own_kernel_share,
            kernels=kernels,
        ),
    )


def added_text(facts: EvaluationFacts = EvaluationFacts(), **options: Any) -> str:  # noqa: B008
    """The text that the facts add to `structured`."""
    made = turn(facts, **options)
    text, before = Profiled().format(made), Structured().format(made)
    assert text.startswith(before)
    return text[len(before) :].strip()


def test_memory_bound_task() -> None:
    words = added_text(EvaluationFacts(roofline=MEMORY))
    assert words.startswith(
        "It moves the necessary bytes at 38 % of the device's bandwidth (1,615 of 4,200 GB/s); "
        "the time is 2.6 times the least possible (20 us). Memory bounds this task"
    )


def test_compute_bound_task() -> None:
    # 2e9 operations at 50 TFLOP/s take 40 us; in 160 us that is 12.5 TFLOP/s, 25 % of the peak.
    roofline = attrs.evolve(MEMORY, floor_us=40.0, achieved_tflops=12.5, flop_share=0.25, bandwidth_share=0.125)
    words = added_text(EvaluationFacts(roofline=roofline), median_us=160.0)
    assert "arithmetic at 25 % of the device's measured peak (12.5 of 50 TFLOP/s); the time is 4 times" in words
    assert "matrix units" in words


def test_no_advice_close_to_the_minimum_time() -> None:
    roofline = attrs.evolve(MEMORY, bandwidth_share=20 / 22)
    words = added_text(EvaluationFacts(roofline=roofline), median_us=22.0)
    assert "the time is 1.1 times the least possible" in words
    assert "Little is left to gain." in words
    assert "Memory bounds" not in words


def test_time_outside_own_kernels_is_reported_with_the_library_kernels() -> None:
    words = added_text(EvaluationFacts(library_kernels=("at::reduce_kernel<512>",)), own_kernel_share=0.26)
    assert words.startswith(
        "74 % of the device time is spent outside your own kernels, in `at::reduce_kernel<512>` and copies."
    )


@pytest.mark.parametrize("share", [None, 0.95, 1.0])
def test_kernels_of_others_that_take_little_time_are_not_mentioned(share) -> None:
    assert added_text(EvaluationFacts(library_kernels=("sgemm",)), own_kernel_share=share) == ""


def test_several_launches_are_reported() -> None:
    kernels = (DeviceKernel("a", "own", 1), DeviceKernel("b", "library", 4))
    words = added_text(EvaluationFacts(device_kernels=kernels))
    assert words == "One call launches 5 kernels, copies and fills (`b` 4, `a` 1): fuse them where you can."
    assert added_text(EvaluationFacts(device_kernels=kernels[:1])) == ""


def test_spills_come_before_other_kernels() -> None:
    small = CompiledKernel("small", 32)
    spilling = CompiledKernel("reduce", 168, spill_stores_bytes=96, spill_loads_bytes=88)
    first, second = added_text(kernels=(small, spilling)).splitlines()
    assert first.startswith("The kernel `reduce` uses 168 registers per thread and spills 96 bytes: hold fewer values")
    assert second == "The kernel `small` uses 32 registers per thread."


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"registers": 40, "stack_bytes": 64}, "keeps 64 bytes per thread in local memory: index local arrays"),
        ({"registers": 200}, "uses 200 registers per thread, which limits the number of resident threads."),
        (
            {"registers": 40, "shared_bytes": 49152},
            "and takes 49152 bytes of static shared memory per block, which limits",
        ),
    ],
)
def test_advice_follows_the_fact(facts, words) -> None:
    assert words in added_text(kernels=(CompiledKernel("k", **facts),))


def test_partial_match_of_parameters_is_reported() -> None:
    assert added_text(EvaluationFacts(parameters="matched by name and shape")) == ""
    partial = "1 of 2 matched by name and shape; the others as drawn"
    assert "1 of 2 matched" in added_text(EvaluationFacts(parameters=partial))


def test_missing_facts_are_skipped() -> None:
    assert added_text() == ""


def test_incorrect_kernel_gets_no_performance_facts() -> None:
    assert added_text(EvaluationFacts(roofline=MEMORY), outcome=Outcome.INCORRECT) == ""


def test_text_is_cut_at_whole_sentences() -> None:
    kernels = (CompiledKernel("n" * 500, 255, spill_stores_bytes=96),) * 8
    facts = EvaluationFacts(roofline=MEMORY, device_kernels=(DeviceKernel("m" * 500, "own", 1),) * 3)
    for limit in (300, 600, 1200):
        text = Profiled(ProfileConfig(max_characters=limit)).format(turn(facts, kernels=kernels))
        assert len(text) <= limit
        assert text.endswith(".")


numbers = st.floats(min_value=0, allow_infinity=False)
names = st.text(max_size=80)
kernels = st.builds(DeviceKernel, names, st.just("own"), st.integers(1, 2**63))
any_facts = st.builds(
    EvaluationFacts,
    roofline=st.none() | st.builds(Roofline, *[numbers] * 9),
    device_kernels=st.lists(kernels, max_size=4).map(tuple),
    library_kernels=st.lists(names, max_size=4).map(tuple),
    parameters=names,
)


@given(any_facts, st.none() | st.floats(0.0, 1.0))
def test_any_facts_are_accepted(facts: EvaluationFacts, own_kernel_share: float | None) -> None:
    text = Profiled().format(turn(facts, own_kernel_share=own_kernel_share))
    assert len(text) <= 1200
    assert text.isprintable() or set(filter(lambda letter: not letter.isprintable(), text)) == {"\n"}
