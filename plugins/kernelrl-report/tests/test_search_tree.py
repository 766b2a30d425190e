"""The tree of a search's attempts, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from report_runs import a_turn

from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome

Make = Callable[..., RunDir]
Open = Callable[..., Any]


def a_search() -> list[Turn]:
    """A wrong kernel with two repairs, one of which is improved with the other in sight."""
    facts: list[tuple[Outcome, float | None, tuple[int, ...]]] = [
        (Outcome.INCORRECT, None, ()),
        (Outcome.CORRECT, 1.1, (0,)),
        (Outcome.CORRECT, 1.4, (0,)),
        (Outcome.COMPILE_ERROR, None, (1, 2)),
        (Outcome.CORRECT, 2.2, (1, 2)),
    ]
    return [
        a_turn((0, 0, 0, number), "a/task", outcome, speedup=speedup, parents=parents)
        if speedup
        else a_turn((0, 0, 0, number), "a/task", outcome, parents=parents)
        for number, (outcome, speedup, parents) in enumerate(facts)
    ]


def test_an_attempt_is_at_the_right_of_the_kernel_that_it_improves(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run([], a_search()))
    nodes = view.page.locator(".tree .attempt")
    labels = [label.partition(": ") for label in nodes.locator("text").all_text_contents()]
    circles = [(node.get_attribute("cx"), node.get_attribute("cy")) for node in nodes.locator("circle").all()]
    places = {int(number): (float(x), float(y)) for (number, _, _), (x, y) in zip(labels, circles, strict=True)}
    assert [speedup for _, _, speedup in labels] == ["", "1.10×", "1.40×", "", "2.20×"]
    columns, rows = ([place[axis] for _, place in sorted(places.items())] for axis in (0, 1))
    assert columns[0] < columns[1] == columns[2] < columns[3] == columns[4]
    # An attempt is on the row of the kernel that it improves, unless an earlier one is there.
    assert rows[0] == rows[1] < rows[2] == rows[3] < rows[4]


def test_the_best_attempt_has_a_ring_and_the_other_kernels_of_its_prompt_a_thin_line(
    make_run: Make, open_report: Open
) -> None:
    view = open_report(make_run([], a_search()))
    assert view.page.locator(".tree .attempt.top text").all_text_contents() == ["4: 2.20×"]
    assert view.page.locator(".tree .branch").count() == 6
    assert view.page.locator(".tree .branch.seen").count() == 2


def test_an_attempt_links_to_its_turn(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run([], a_search()))
    view.page.locator(".tree .attempt circle").nth(3).click()
    assert view.page.url.endswith("#/episode/held-out/0.0.0?turn=3")
    assert view.page.locator(".turn.chosen").get_attribute("id") == "turn-3"
    assert view.page.locator(".tree .attempt").count() == 5


def test_episodes_outside_of_a_search_have_no_tree(make_run: Make, open_report: Open) -> None:
    assert open_report(make_run()).page.locator(".tree").count() == 0
