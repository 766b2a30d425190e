"""The evaluation cache: a fault of the disk costs an evaluation and never a run; old entries are removed."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from kernelrl_core.environment.evaluation_cache import EvaluationCache
from kernelrl_testing.values import make_evaluation


def test_an_entry_of_another_request_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = EvaluationCache(tmp_path, 10)
    cache.write("one", make_evaluation())
    (tmp_path / "one.json").rename(tmp_path / "two.json")
    assert cache.read("two") is None
    assert "the entry belongs to another request" in caplog.text


def test_above_the_limit_the_least_recently_used_tenth_is_removed(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path, 20)
    for number in range(20):
        cache.write(str(number), make_evaluation())
        os.utime(tmp_path / f"{number}.json", (number, number))
    assert cache.read("0") is not None  # used now
    cache.write("20", make_evaluation())
    left = {int(path.stem) for path in tmp_path.iterdir()}
    assert left == {0, *range(4, 21)}


def test_a_directory_that_cannot_be_written_disables_the_cache_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a_file").touch()
    cache = EvaluationCache(tmp_path / "a_file", 10)
    with caplog.at_level(logging.WARNING):
        cache.write("one", make_evaluation())
        cache.write("two", make_evaluation())
    assert len(caplog.records) == 1
    assert "caching is disabled" in caplog.text


def test_an_evaluation_that_json_cannot_hold_is_not_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = EvaluationCache(tmp_path, 10)
    cache.write("one", make_evaluation(seconds={"run": float("nan")}))
    assert (cache.read("one"), "cannot be cached" in caplog.text) == (None, True)
    cache.write("one", make_evaluation())
    assert cache.read("one") == make_evaluation()
