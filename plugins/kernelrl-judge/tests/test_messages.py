"""What an evaluation says of a failure."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.probes import messages
from kernelrl_judge.protocol.failures import Failure, Stage

_PIECES = ["/", "//", "kernelrl-", "kernelrl-ab/", "/tmp/kernelrl-x1/", "a", "-", ".", " ", "é", "'"]


def said(text: str) -> str:
    return messages.failure(Failure(Stage.FORWARD, "error", "RuntimeError", text)).partition("\n")[2]


def test_the_temporary_directory_of_a_runner_is_not_told() -> None:
    assert said("in /tmp/kernelrl-zygote_ab/candidate.py, line 3") == "in candidate.py, line 3"
    assert said("in /usr/lib/python3/re.py") == "in /usr/lib/python3/re.py"


@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=14))
def test_paths_are_cut_as_by_the_pattern_that_is_too_slow(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert said(text) == re.sub(r"/[\w./-]*/kernelrl-\w+/", "", text)


@pytest.mark.parametrize("piece", ["/", "/a", "/kernelrl-a", "/kernelrl-", "\x1b[", "\x1b[0;", "\x1b[0 "])
def test_reading_a_failure_takes_time_in_proportion_to_its_text(piece: str) -> None:
    started = time.process_time()
    said(piece * (4_000_000 // len(piece)))
    assert time.process_time() - started < 0.5
