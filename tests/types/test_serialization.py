"""Values are unchanged after conversion to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import cattrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.types import (
    Candidate,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    EvaluationRequest,
    EvaluationSettings,
    ExtensionBuild,
    Extraction,
    Finding,
    Message,
    Mismatch,
    Outcome,
    Prompt,
    Reply,
    Roofline,
    SampleId,
    Score,
    Severity,
    SourceFacts,
    Task,
    TimingFacts,
    Turn,
    Verdict,
)
from kernelrl_core.types import serialization as codec

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
finite = st.floats(allow_nan=False, allow_infinity=False)
findings = st.builds(
    Finding, rule=texts, severity=st.sampled_from(Severity), evidence=texts, line=st.none() | st.integers(1, 999)
)
mismatches = st.builds(
    Mismatch, kind=st.just("values"), output=texts, max_abs=st.none() | finite, wrong_share=st.none() | finite
)
seconds = st.dictionaries(texts, finite, max_size=3)
counts = st.integers(0, 2**31)
builds = st.builds(
    ExtensionBuild,
    route=texts,
    reason=texts,
    cached=st.booleans(),
    seconds=st.none() | finite,
    cpu_seconds=finite,
    stages=seconds,
    final=st.booleans(),
)
device_kernels = st.builds(
    DeviceKernel, name=texts, origin=st.sampled_from(["own", "library", "glue"]), calls=st.integers(1, 2**31)
)
timings = st.builds(
    TimingFacts, method=texts, rounds=counts, fewer_slots_for_memory=st.booleans(), sm_ghz=st.none() | finite
)
rooflines = st.builds(Roofline, *[finite] * 9, memory_floor_us=st.none() | finite)
facts = st.builds(
    EvaluationFacts,
    phases_s=seconds,
    builds=st.lists(builds, max_size=2).map(tuple),
    parameters=texts,
    computing_operators=st.none() | st.lists(texts, max_size=2).map(tuple),
    library_symbols=st.lists(texts, max_size=2).map(tuple),
    stress=texts,
    error_ratio=st.none() | finite,
    direct_because=texts,
    device_kernels=st.lists(device_kernels, max_size=2).map(tuple),
    library_kernel_share=st.none() | finite,
    timing=st.none() | timings,
    roofline=st.none() | rooflines,
)
evaluations = st.builds(
    Evaluation,
    outcome=st.sampled_from(Outcome),
    message=texts,
    mismatch=st.none() | mismatches,
    speedup=st.none() | finite,
    speedup_ci=st.none() | st.tuples(finite, finite),
    findings=st.lists(findings, max_size=3).map(tuple),
    runtime=st.none(),
    baseline=st.none(),
    facts=facts,
    provenance=st.just({}),
    seconds=seconds,
)
turns = st.builds(
    Turn,
    id=st.builds(SampleId, *[st.integers(0, 999)] * 4),
    task=st.builds(Task, id=texts, reference=texts, flags=st.lists(texts, max_size=2).map(tuple)),
    prompt=st.builds(
        Prompt,
        messages=st.lists(st.builds(Message, role=st.just("user"), content=texts), max_size=2).map(tuple),
        tokens=st.lists(st.integers(0, 2**31), max_size=5).map(tuple),
    ),
    reply=st.builds(
        Reply,
        text=texts,
        tokens=st.lists(st.integers(0, 2**31), max_size=5).map(tuple),
        logprobs=st.lists(finite, max_size=5).map(tuple),
        stop_reason=st.sampled_from(["stop", "length"]),
    ),
    extraction=st.builds(
        Extraction,
        candidate=st.none() | st.builds(Candidate, source=texts, backend=texts, facts=st.just(SourceFacts())),
    ),
    evaluation=st.none() | evaluations,
    findings=st.lists(findings, max_size=2).map(tuple),
    outcome=st.sampled_from(Outcome),
    verdict=st.sampled_from(Verdict),
    message=texts,
    score=st.builds(Score, total=finite, parts=st.dictionaries(texts, finite, max_size=3)),
)


@given(turns)
def test_a_turn_is_equal_after_conversion_to_json_and_back(turn: Turn) -> None:
    assert codec.loads(Turn, codec.dumps(turn)) == turn


@given(turns)
def test_a_turn_is_one_line(turn: Turn) -> None:
    assert "\n" not in codec.dumps(turn)


def test_a_request_is_plain_json() -> None:
    request = EvaluationRequest("t", "x", "0", "s", "1", "triton", {"mode": "auto"}, EvaluationSettings(), "ff", "0.1")
    data: Any = json.loads(codec.dumps(request))
    assert data["settings"]["trials"] == 5
    assert codec.from_json(EvaluationRequest, data) == request


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(cattrs.BaseValidationError):
        codec.from_json(Message, {"role": "user", "content": "", "colour": "red"})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.dumps(Score(number))


def test_facts_that_were_not_determined_are_not_written() -> None:
    assert codec.to_json(Evaluation(Outcome.CORRECT))["facts"] == {}
    found = EvaluationFacts(computing_operators=(), builds=(ExtensionBuild("bound"),), timing=TimingFacts("calls"))
    assert codec.to_json(Evaluation(Outcome.CORRECT, facts=found))["facts"] == {
        "builds": [{"route": "bound"}],
        "computing_operators": [],
        "timing": {"method": "calls"},
    }


@pytest.mark.parametrize("facts", [{"stages_s": {}}, {"timing": {"method": "calls", "turns": 1}}, {"builds": 1}, []])
def test_facts_of_another_shape_are_refused(facts: object) -> None:
    with pytest.raises(cattrs.BaseValidationError):
        codec.from_json(Evaluation, {"outcome": "correct", "facts": facts})


# The facts of a timed C++ kernel in a row of the version that had them in `profile`.
FORMER_CPP: dict[str, Any] = {
    "stages_s": {"start": 0.0261, "load": 0.0134, "reference": 0.0017, "trials": 0.1007, "stress": 0.3185},
    "builds": [
        {
            "route": "bound",
            "reason": "",
            "cached": True,
            "seconds": 29.743,
            "cpu_seconds": 4.028,
            "stages": {"main (g++)": 3.444, "link": 0.088, "service": 0.495},
        }
    ],
    "library_symbols": [],
    "parameters": "the reference has none",
    "computing_operators": [],
    "stress": "passed",
    "error_ratio": 0.6,
    "timing": {"method": "calls", "rounds": 8, "calls_per_window": 24, "baseline_calls_per_window": 28},
    "roofline": {
        "compulsory_bytes": 2520000.0,
        "flops": 0.0,
        "bandwidth_gb_s": 17.897646717677198,
        "tflops": 0.08043575121484489,
        "floor_us": 140.80063372303798,
        "achieved_bandwidth_gb_s": 12.235897544423116,
        "bandwidth_share": 0.6836595747718012,
        "achieved_tflops": 0.0,
        "flop_share": 0.0,
    },
    "no_op": "incorrect",
}


def read_former(profile: object) -> Evaluation:
    return codec.from_json(Evaluation, {"outcome": "correct", "profile": profile})


def test_the_mapping_profile_of_a_former_row_becomes_facts() -> None:
    assert read_former(FORMER_CPP).facts == EvaluationFacts(
        phases_s=FORMER_CPP["stages_s"],
        builds=(
            ExtensionBuild(
                "bound", cached=True, seconds=29.743, cpu_seconds=4.028, stages=FORMER_CPP["builds"][0]["stages"]
            ),
        ),
        parameters="the reference has none",
        computing_operators=(),
        stress="passed",
        error_ratio=0.6,
        no_op="incorrect",
        timing=TimingFacts("calls", rounds=8, calls_per_window=24, baseline_calls_per_window=28),
        roofline=Roofline(**FORMER_CPP["roofline"]),
    )


def test_facts_of_a_recorded_call_in_a_former_row_are_read() -> None:
    kernels = [{"name": "add", "origin": "own", "calls": 1}, {"name": "sgemm", "origin": "library", "calls": 2}]
    timing = {"method": "replay", "rounds": 20, "dropped_rounds": 1, "fewer_slots_for_memory": True, "sm_ghz": 1.98}
    found = read_former(
        {
            "device_kernels": kernels,
            "library_kernels": ["sgemm"],
            "library_kernel_share": 0.4,
            "timing": timing,
            "timing_is_eager": "it waits for the device",
            "builds": [{"route": "failed", "seconds": None, "cpu_seconds": 1.5, "final": False}],
        }
    )
    assert found.facts == EvaluationFacts(
        device_kernels=(DeviceKernel("add", "own", 1), DeviceKernel("sgemm", "library", 2)),
        library_kernels=("sgemm",),
        library_kernel_share=0.4,
        timing=TimingFacts("replay", 20, dropped_rounds=1, fewer_slots_for_memory=True, sm_ghz=1.98),
        direct_because="it waits for the device",
        builds=(ExtensionBuild("failed", cpu_seconds=1.5, final=False),),
    )


def test_keys_and_values_of_a_former_row_that_fit_no_field_are_dropped() -> None:
    odd = {
        "launches": 3,
        "stages_s": [1.0],
        "builds": [{"reason": "no route"}],
        "error_ratio": "large",
        "device_kernels": [{"name": "add", "origin": "mine", "calls": 1}],
        "timing": {"method": "calls", "turns": 2},
        "roofline": {"bandwidth_share": 3.0},
        "stress": "passed",
    }
    assert read_former(odd).facts == EvaluationFacts(timing=TimingFacts("calls"), stress="passed")


@pytest.mark.parametrize("profile", [None, {}, [], "x", 3])
def test_a_former_row_without_facts_is_read(profile: object) -> None:
    assert read_former(profile).facts == EvaluationFacts()


former_keys = st.sampled_from([*FORMER_CPP, "device_kernels", "library_kernels", "timing_is_eager"])
former_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "origin", "calls", "route", "method", "floor_us"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(former_keys, former_values))
def test_a_former_row_with_any_values_is_read_and_written(profile: dict[str, Any]) -> None:
    found = read_former(profile)
    assert codec.loads(Evaluation, codec.dumps(found)) == found
