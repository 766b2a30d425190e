"""Text of the formatter `profile`, with numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.prompts.extraction import extract
from kernelrl_core.testing.values import make_evaluation, make_reply, make_runtime, make_turn
from kernelrl_core.types import CompiledKernel, Outcome
from kernelrl_plugin_feedback.config import ProfileConfig
from kernelrl_plugin_feedback.profiled import Profiled
from kernelrl_plugin_feedback.structured import Structured

# 84 MB at 4,200 GB/s take 20 us. In 52 us that is 1,615 GB/s: 38 % of the ceiling, 2.6 times the minimum time.
MEMORY = {
    "compulsory_bytes": 84e6,
    "flops": 0.0,
    "bandwidth_gb_s": 4200.0,
    "tflops": 50.0,
    "floor_us": 20.0,
    "achieved_bandwidth_gb_s": 84e6 / 52e-6 / 1e9,
    "bandwidth_share": 20 / 52,
    "achieved_tflops": 0.0,
    "flop_share": 0.0,
}


def turn(profile, *, outcome=Outcome.CORRECT, median_us=52.0, own_kernel_share=None, kernels=()):
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
            profile=profile,
            own_kernel_share=own_kernel_share,
            kernels=kernels,
        ),
    )


def profile_text(profile, **options):
    """The text that the profile adds to `structured`."""
    made = turn(profile, **options)
    text, before = Profiled().format(made), Structured().format(made)
    assert text.startswith(before)
    return text[len(before) :].strip()


def test_memory_bound_task():
    words = profile_text({"roofline": MEMORY})
    assert words.startswith(
        "It moves the necessary bytes at 38 % of the device's bandwidth (1,615 of 4,200 GB/s); "
        "the time is 2.6 times the least possible (20 us). Memory bounds this task"
    )


def test_compute_bound_task():
    # 2e9 operations at 50 TFLOP/s take 40 us; in 160 us that is 12.5 TFLOP/s, 25 % of the peak.
    roofline = {**MEMORY, "floor_us": 40.0, "achieved_tflops": 12.5, "flop_share": 0.25, "bandwidth_share": 0.125}
    words = profile_text({"roofline": roofline}, median_us=160.0)
    assert "arithmetic at 25 % of the device's measured peak (12.5 of 50 TFLOP/s); the time is 4 times" in words
    assert "matrix units" in words


def test_no_advice_close_to_the_minimum_time():
    words = profile_text({"roofline": {**MEMORY, "bandwidth_share": 20 / 22}}, median_us=22.0)
    assert "the time is 1.1 times the least possible" in words
    assert "Little is left to gain." in words
    assert "Memory bounds" not in words


def test_time_outside_own_kernels_is_reported_with_the_library_kernels():
    words = profile_text({"library_kernels": ["at::reduce_kernel<512>"]}, own_kernel_share=0.26)
    assert words.startswith(
        "74 % of the device time is spent outside your own kernels, in `at::reduce_kernel<512>` and copies."
    )


@pytest.mark.parametrize("share", [None, 0.95, 1.0])
def test_kernels_of_others_that_take_little_time_are_not_mentioned(share):
    assert profile_text({"library_kernels": ["sgemm"]}, own_kernel_share=share) == ""


def test_several_launches_are_reported():
    kernels = [{"name": "a", "origin": "own", "calls": 1}, {"name": "b", "origin": "library", "calls": 4}]
    words = profile_text({"device_kernels": kernels})
    assert words == "One call launches 5 kernels, copies and fills (`b` 4, `a` 1): fuse them where you can."
    assert profile_text({"device_kernels": kernels[:1]}) == ""


def test_spills_come_before_other_kernels():
    small = CompiledKernel("small", 32)
    spilling = CompiledKernel("reduce", 168, spill_stores_bytes=96, spill_loads_bytes=88)
    first, second = profile_text({}, kernels=(small, spilling)).splitlines()
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
def test_advice_follows_the_fact(facts, words):
    assert words in profile_text({}, kernels=(CompiledKernel("k", **facts),))


def test_partial_match_of_parameters_is_reported():
    assert profile_text({"parameters": "matched by name and shape"}) == ""
    assert "1 of 2 matched" in profile_text({"parameters": "1 of 2 matched by name and shape; the others as drawn"})


def test_missing_facts_are_skipped():
    assert profile_text({}) == ""


def test_incorrect_kernel_gets_no_performance_facts():
    assert profile_text({"roofline": MEMORY}, outcome=Outcome.INCORRECT) == ""


def test_text_is_cut_at_whole_sentences():
    kernels = (CompiledKernel("n" * 500, 255, spill_stores_bytes=96),) * 8
    launched = [{"name": "m" * 500, "origin": "own", "calls": 1}] * 3
    profile = {"roofline": MEMORY, "device_kernels": launched}
    for limit in (300, 600, 1200):
        text = Profiled(ProfileConfig(max_characters=limit)).format(turn(profile, kernels=kernels))
        assert len(text) <= limit
        assert text.endswith(".")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "origin", "calls", "floor_us", "bandwidth_share"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["device_kernels", "roofline", "library_kernels"]), junk))
def test_profile_of_any_form_is_accepted(profile):
    assert len(Profiled().format(turn(profile))) <= 1200
