"""Processes and directories from which runners are forked."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernelrl_judge.peer.nursery import Scratch
from kernelrl_judge.peer.process import TimeLimit


def test_a_directory_whose_process_was_killed_is_removed_when_the_next_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = Scratch()
    abandoned = tmp_path / "kernelrl-zygote_abandoned"
    abandoned.mkdir()
    (abandoned / "candidate.py").touch()
    long_ago = time.time() - 3600
    for path in (abandoned, Path(used.path)):
        os.utime(path, (long_ago, long_ago))
    Scratch().close()
    assert not abandoned.exists()
    assert Path(used.path).exists()
    used.close()
    assert list(tmp_path.iterdir()) == []


def test_a_candidate_that_waited_for_a_processor_gets_that_time_until_it_ran_for_its_limit() -> None:
    limit = TimeLimit(10.0, waited_s={7: 1.0}, ran_s={7: 0.5}, left_s=12.0)
    assert limit.extension_s(waited_s={7: 9.0}, ran_s={7: 2.5}) == 8.0
    assert limit.extension_s(waited_s={7: 15.0}, ran_s={7: 4.5}) == 4.0
    assert limit.extension_s(waited_s={7: 19.0}, ran_s={7: 5.5}) == 0.0


@pytest.mark.parametrize(("waited_s", "ran_s"), [(8.0, 10.0), (0.01, 0.1)])
def test_a_candidate_that_ran_for_its_limit_or_slept_gets_no_further_time(waited_s: float, ran_s: float) -> None:
    limit = TimeLimit(10.0, waited_s={}, ran_s={}, left_s=30.0)
    assert limit.extension_s(waited_s={7: waited_s}, ran_s={7: ran_s}) == 0.0
