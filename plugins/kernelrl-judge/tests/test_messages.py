"""Messages about failures."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.evaluators import Cause, Mismatch
from kernelrl_judge.judge import messages
from kernelrl_judge.probes.trials import TrialFailure
from kernelrl_judge.protocol.failures import Failure, Phase

_PIECES = ["/", "//", "kernelrl-", "kernelrl-ab/", "/tmp/kernelrl-x1/", "a", "-", ".", " ", "é", "'"]


def message_about(text: str) -> str:
    return messages.failure(Failure(Phase.FORWARD, "error", "RuntimeError", text)).partition("\n")[2]


def test_the_temporary_directory_of_a_runner_is_not_in_a_message() -> None:
    assert message_about("in /tmp/kernelrl-zygote_ab/candidate.py, line 3") == "in candidate.py, line 3"
    assert message_about("in /usr/lib/python3/re.py") == "in /usr/lib/python3/re.py"


@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=14))
def test_paths_are_shortened_as_by_a_pattern_that_would_be_too_slow(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert message_about(text) == re.sub(r"/[\w./-]*/kernelrl-\w+/", "", text)


@pytest.mark.parametrize("piece", ["/", "/a", "/kernelrl-a", "/kernelrl-", "\x1b[", "\x1b[0;", "\x1b[0 "])
def test_the_time_for_a_message_is_proportional_to_the_text(piece: str) -> None:
    started = time.process_time()
    message_about(piece * (4_000_000 // len(piece)))
    assert time.process_time() - started < 0.5


FACTORS = Mismatch("values", "", max_abs=0.1, mean_abs=0.01).with_cause(Cause.FACTORS, "factors of ten bits.")


def kinds(failure: TrialFailure, source: str = "y = x * 2.0", *, is_random: bool = False) -> list[Cause]:
    found = messages.explained(failure.mismatch, source, failure, has_random_reference=is_random)
    return [cause.kind for cause in found.causes]


@pytest.mark.parametrize(
    ("source", "causes"),
    [
        ("y = tl.dot(a, b)", [Cause.FACTORS]),
        ("wmma::mma_sync(c, a, b, c);", [Cause.FACTORS]),
        ("y = tl.exp(x) * 2.0", []),
    ],
)
def test_factors_of_ten_bits_are_named_where_a_source_multiplies_matrices(source: str, causes: list[Cause]) -> None:
    assert kinds(TrialFailure(FACTORS), source) == causes


def test_causes_that_other_calls_show_come_first() -> None:
    unwritten = FACTORS.with_cause(Cause.UNWRITTEN, "nothing wrote them.")
    assert kinds(TrialFailure(unwritten, follows_other_parameters=True)) == [Cause.PARAMETERS, Cause.UNWRITTEN]
    assert kinds(TrialFailure(unwritten), is_random=True) == [Cause.RANDOM, Cause.UNWRITTEN]
