"""Which processors timed sections have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.isolation import cpus

MANY = len(os.sched_getaffinity(0)) > 1
needs_two = pytest.mark.skipif(not MANY, reason="needs two processors")


def alone(count: int) -> list[frozenset[int]]:
    return [frozenset({number}) for number in range(count)]


def test_a_section_has_two_cores_from_the_end() -> None:
    chosen, spared = cpus.pairs(alone(8), 1)
    assert chosen == [(7, 6), (5, 4), (3, 2), (1, 0)]
    assert spared == {6, 7}


def test_both_threads_of_a_core_are_left_alone() -> None:
    cores = [frozenset({number, number + 4}) for number in range(4)]
    chosen, spared = cpus.pairs(cores, 1)
    assert chosen[0] == (3, 2)
    assert spared == {2, 3, 6, 7}


def test_two_processors_are_told_apart_and_none_is_left_alone() -> None:
    assert cpus.pairs(alone(2), 1) == ([(1, 0)], frozenset())


def test_one_processor_is_no_pair() -> None:
    assert cpus.pairs(alone(1), 1) == ([], frozenset())


@given(st.integers(0, 64), st.integers(0, 10))
def test_half_of_the_cores_are_never_left_alone(count: int, sections: int) -> None:
    chosen, spared = cpus.pairs(alone(count), sections)
    assert len(spared) <= count / 2
    numbers = [number for pair in chosen for number in pair]
    assert len(numbers) == len({*numbers})
    assert len(spared) <= 2 * sections


def test_cores_are_read_off_the_topology(tmp_path: Path) -> None:
    for number, text in enumerate(("0,2", "1,3", "0,2", "1,3")):
        place = tmp_path / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{text}\n")
    assert cpus.siblings({0, 1, 2, 3}, tmp_path) == [{0, 2}, {1, 3}]
    assert cpus.siblings({0, 1, 3}, tmp_path) == [{0}, {1, 3}]


def test_a_list_of_numbers_may_have_ranges(tmp_path: Path) -> None:
    place = tmp_path / "cpu0" / "topology"
    place.mkdir(parents=True)
    (place / "thread_siblings_list").write_text("0-1\n")
    assert cpus.siblings({0, 1}, tmp_path) == [{0, 1}]


def test_processors_without_a_topology_are_cores(tmp_path: Path) -> None:
    assert cpus.siblings({2, 5}, tmp_path) == [{2}, {5}]


@needs_two
def test_a_section_gives_judge_and_runner_one_each_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    usual = os.sched_getaffinity(0)
    one, other = sorted(usual)[:2]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with cpus.apart(os.getpid(), {"KERNELRL_TIMED_ON": f"[[{one}, {other}]]"}) as pair:
            assert pair == (one, other)
            assert os.sched_getaffinity(0) == {one}
            assert os.sched_getaffinity(child.pid) == {other}
        assert os.sched_getaffinity(0) == usual
        assert os.sched_getaffinity(child.pid) == usual
    finally:
        child.kill()
        child.wait()


@needs_two
def test_a_pair_that_is_taken_is_not_had_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    one, other = sorted(os.sched_getaffinity(0))[:2]
    environment = {"KERNELRL_TIMED_ON": f"[[{one}, {other}]]"}
    with cpus.apart(os.getpid(), environment), cpus.apart(os.getpid(), environment) as second:
        assert second is None
    with cpus.apart(os.getpid(), environment) as again:
        assert again == (one, other)


@needs_two
def test_others_leave_the_processors_of_timed_sections_alone() -> None:
    kept, spared = sorted(os.sched_getaffinity(0))[:2]
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, kernelrl_judge.isolation.cpus as cpus; cpus.spare(); print(sorted(os.sched_getaffinity(0)))",
        ],
        env={**os.environ, "KERNELRL_SPARED_PROCESSORS": f"[{spared}]"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert str(spared) not in said.strip("[]\n").split(", ")
    assert str(kept) in said.strip("[]\n").split(", ")


def test_nobody_leaves_all_processors_alone() -> None:
    usual = os.sched_getaffinity(0)
    cpus.spare({"KERNELRL_SPARED_PROCESSORS": str(sorted(usual))})
    assert os.sched_getaffinity(0) == usual


def test_without_a_gpu_nothing_is_kept_apart() -> None:
    with cpus.apart(os.getpid(), {}) as pair:
        assert pair is None
