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
    CompiledKernel,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Extraction,
    Finding,
    Message,
    Mismatch,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Severity,
    SourceFacts,
    Task,
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
    profile=st.dictionaries(texts, st.none() | st.booleans() | st.integers() | finite | texts, max_size=3),
    provenance=st.just({}),
    seconds=st.dictionaries(texts, finite, max_size=3),
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


def test_facts_that_rows_of_older_versions_have_in_the_profile_become_fields() -> None:
    kernel = {"name": "add", "registers": 40, "spill_stores_bytes": 8, "shared_bytes": 0}
    row = {"outcome": "correct", "profile": {"kernels": [kernel], "own_kernel_share": 0.5, "roofline": {}}}
    found = codec.from_json(Evaluation, row)
    assert found.kernels == (CompiledKernel("add", 40, spill_stores_bytes=8),)
    assert (found.own_kernel_share, found.profile) == (0.5, {"roofline": {}})
