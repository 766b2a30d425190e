"""Task schedule, and sampling seeds."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.tasks import schedule as schedules
from kernelrl_core.types import SampleId
from kernelrl_core.types.seeds import derived_seed, sample_seed

IDS = [f"t{i}" for i in range(10)]


def schedule(ids: list[str], train: TrainSettings, seed: int) -> list[list[int]]:
    return list(schedules.schedule(ids, train, seed))


def settings(**changes: object) -> TrainSettings:
    return attrs.evolve(TrainSettings(tasks_per_step=4), **changes)  # type: ignore[arg-type]


def test_epochs_become_steps_with_a_short_last_batch() -> None:
    batches = schedule(IDS, settings(epochs=1.5), 0)
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    places = [index for batch in batches for index in batch]
    assert sorted(places[:10]) == list(range(10))
    assert len(set(places[10:])) == 5


def test_kevin_counts_248_steps() -> None:
    assert len(schedule([str(i) for i in range(90)], settings(tasks_per_step=8, epochs=22.0), 0)) == 248


def test_steps_are_full() -> None:
    assert [len(batch) for batch in schedule(IDS, settings(steps=7), 0)] == [4] * 7


def test_without_steps_and_epochs_there_is_one_pass() -> None:
    batches = schedule(IDS, settings(), 0)
    assert sorted(index for batch in batches for index in batch) == list(range(10))


def test_steps_with_epochs_and_empty_splits_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="exclude"):
        schedule(IDS, settings(steps=1, epochs=1.0), 0)
    with pytest.raises(UsageError, match="no tasks"):
        schedule([], settings(), 0)


def test_source_order_is_kept_without_shuffle() -> None:
    assert schedule(IDS, settings(shuffle=False, steps=3), 0) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 20), st.integers(0, 3))
def test_batches_do_not_repeat_tasks_and_every_pass_is_complete(n: int, size: int, steps: int, seed: int) -> None:
    ids = [f"t{i}" for i in range(n)]
    batches = schedule(ids, settings(tasks_per_step=size, steps=steps), seed)
    if n >= size:
        assert all(len(set(batch)) == len(batch) for batch in batches)
    stream = [index for batch in batches for index in batch]
    for start in range(0, len(stream) - n + 1, n):
        assert sorted(stream[start : start + n]) == list(range(n))
    assert batches == schedule(ids, settings(tasks_per_step=size, steps=steps), seed)


def test_longer_run_starts_with_the_batches_of_a_shorter_one() -> None:
    assert schedule(IDS, settings(steps=9), 1)[:4] == schedule(IDS, settings(steps=4), 1)
    assert schedule(IDS, settings(steps=4), 1) != schedule(IDS, settings(steps=4), 2)


def test_a_batch_of_a_long_run_is_computed_without_the_later_ones() -> None:
    long = schedules.schedule(IDS, settings(steps=10**9), 1)
    assert len(long) == 10**9
    assert long[:4] == schedule(IDS, settings(steps=4), 1)


def test_sample_seeds_are_distinct_and_reproducible() -> None:
    def all_seeds() -> list[int]:
        return [
            sample_seed(128, purpose, SampleId(step, index, attempt, turn), "t")
            for purpose in ("train", "eval")
            for step in range(3)
            for index in range(3)
            for attempt in range(8)
            for turn in range(3)
        ]

    assert len(set(all_seeds())) == len(all_seeds())
    assert all_seeds() == all_seeds()


@given(st.integers(0), st.lists(st.one_of(st.integers(), st.text()), max_size=4))
def test_seeds_fit_into_63_bits(seed: int, parts: list[int | str]) -> None:
    assert 0 <= derived_seed(seed, "x", *parts) < 2**63


def test_derived_seed_is_stable_across_versions() -> None:
    assert derived_seed(0, "sample", 1, "a") == derived_seed(0, "sample", 1, "a") != derived_seed(0, "sample", "1", "a")
