"""The regions that wrong elements form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelrl_judge.task.wrong_region import spread_places, wrong_region

Mark = Callable[[torch.Tensor], object]


def marked(shape: tuple[int, ...], mark: Mark) -> torch.Tensor:
    wrong = torch.zeros(shape, dtype=torch.bool)
    mark(wrong)
    return wrong


def at(index: object) -> Mark:
    return lambda wrong: wrong.__setitem__(index, True)


def above_the_diagonal(wrong: torch.Tensor) -> None:
    wrong[torch.ones_like(wrong).triu(1)] = True


def scattered(wrong: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    wrong[torch.rand(wrong.shape, generator=generator) < 0.1] = True


EVERY = slice(None)


@pytest.mark.parametrize(
    ("shape", "mark", "pattern", "text"),
    [
        ((300,), at(slice(256, None)), "tail", "the last 44 of 300 elements"),
        ((300,), at(299), "tail", "the last element"),
        ((8, 1000), at((EVERY, -1)), "tail", "the last column"),
        ((8, 1000), at((EVERY, 5)), "single", "column 5"),
        ((8, 1000), at((EVERY, slice(127, None, 128))), "stride", "every 128th column from 127 on (7 of 1000)"),
        ((8, 1000), at((EVERY, slice(0, None, 2))), "stride", "every second column from 0 on (500 of 1000)"),
        ((5_000_001,), at(slice(6, None, 8)), "stride", "every 8th element from 6 on (625000 of 5000001)"),
        ((64, 10), at(slice(50, None)), "tail", "the last 14 of 64 rows"),
        ((64, 10), at(slice(8, 16)), "range", "rows 8 to 15 of 64"),
        (
            (64, 90),
            at((slice(32, None), slice(64, None))),
            "block",
            "the last 32 of 64 rows, in the last 26 of 90 columns",
        ),
        ((2, 3, 40), at((EVERY, EVERY, slice(32, None))), "tail", "the last 8 of 40 indices of axis 2"),
        ((30, 30), above_the_diagonal, "diagonal", "above the diagonal"),
        ((30, 30), lambda wrong: wrong.fill_diagonal_(True), "diagonal", "on the diagonal"),
        ((30, 30), scattered, "scattered", "scattered over 29 of 30 rows and 27 of 30 columns"),
        ((30, 30), at(EVERY), "all", "all of them"),
    ],
)
def test_a_region_is_named(shape: tuple[int, ...], mark: Mark, pattern: str, text: str) -> None:
    found = wrong_region(marked(shape, mark))
    assert (found.pattern, found.text) == (pattern, text)


def test_a_tail_in_memory_order_may_begin_within_a_row() -> None:
    found = wrong_region(marked((10, 100), lambda wrong: wrong.view(-1)[768:].fill_(True)))
    assert (found.pattern, found.text, found.first) == ("tail", "the last 232 of 1000 elements, in memory order", 768)


def test_places_of_each_block_are_a_stride() -> None:
    found = wrong_region(marked((4, 1024), lambda wrong: wrong.view(4, 8, 128)[:, :, 125:].fill_(True)))
    assert (found.pattern, found.text) == ("stride", "the last 3 of every 128 columns")


def test_places_are_spread_over_all_wrong_elements() -> None:
    wrong = marked((100, 100), at((slice(50, None), EVERY)))
    places = spread_places(wrong, 11)
    assert (places[0].item(), places[-1].item(), len(places)) == (5000, 9999, 11)
    assert bool(wrong.flatten()[places].all())


def test_the_same_places_of_each_block_of_a_large_output_are_found() -> None:
    wrong = torch.zeros(5_000_001, dtype=torch.bool)
    for place in (5, 6, 7):
        wrong[place::8] = True
    assert wrong_region(wrong).text == "the last 3 of every 8 elements"
