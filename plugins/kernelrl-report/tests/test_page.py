"""The page in a browser: links, filters, keys, and what an episode shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from report_runs import a_turn, metrics_row, story

from kernelrl_core.api.episodes import ExcludedExample, ShownExample
from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome

Make = Callable[..., RunDir]
Open = Callable[..., Any]


def test_the_best_kernel_is_three_clicks_away(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run())
    view.page.click("nav >> text=Best kernels")
    view.page.click(".gallery .card >> nth=0")
    assert view.text("h2") == "starter/2/softmax"
    assert "2.50×" in view.text(".turn")
    assert "x + 1.0.0.0" in view.text(".code")


def test_the_overview_has_curves_and_outcomes(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(metrics=[metrics_row(0), metrics_row(1, **{"my/metric": 3.0})]), "#/?m=my%2Fmetric")
    titles = view.page.locator("figcaption").all_inner_texts()
    assert any(title.startswith("Score") for title in titles)
    assert any(title.startswith("Held-out tasks") for title in titles)
    assert any(title.startswith("my/metric") for title in titles)
    view.page.click(".outcomes svg a >> nth=1")
    assert view.page.url.endswith("#/samples?set=train&step=1")


def falling(step: int) -> dict[str, Any]:
    correct = 0.6 if step < 4 else 0.05
    return metrics_row(step, **{"kernel/correct_rate": correct, "kernel/compile_rate": correct, "optim/lr": 0.01})


def test_the_overview_begins_with_the_verdict_and_folds_flat_charts(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(metrics=[falling(step) for step in range(8)]))
    assert view.text("h1") == "The policy collapsed: correct kernels fell from 60 % at step 0 to 5 %."
    assert "correct kernels: 60 % → 5 %" in view.text(".verdict-of-run")
    titles = view.page.locator(".chart figcaption").all_inner_texts()
    assert titles[0] == "Training tasks"
    assert "Learning rate" not in titles
    view.page.locator("summary", has_text="without a change").click()
    view.page.locator("figcaption", has_text="Learning rate").wait_for()


def test_a_chart_names_its_axes_and_has_last_and_peak(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(metrics=[falling(step) for step in range(8)]))
    chart = view.page.locator(".chart", has_text="Training tasks")
    chart.locator("svg[viewBox^='0 0 ']").last.wait_for()
    assert {"share in %", "step"} <= set(chart.locator("text.tick").all_text_contents())
    # Equal curves are one.
    (legend,) = chart.locator(".legend li").all_inner_texts()
    assert legend.split("\n") == ["correct = built", "last 5 %", "peak 60 % at 0"]
    chart.locator("summary", has_text="definition").click()
    assert "share of i with o_i = `correct`" in chart.inner_text()


@pytest.mark.parametrize("width", [420, 900, 1600])
def test_every_page_fits_into_the_window(make_run: Make, open_report: Open, width: int) -> None:
    view = open_report(make_run(metrics=[falling(step) for step in range(8)]))
    view.page.set_viewport_size({"width": width, "height": 900})
    for fragment in (
        "#/",
        "#/samples",
        "#/tasks",
        "#/best",
        "#/suspects",
        "#/held-out",
        "#/episode/train/0.0.0?turn=0",
    ):
        view.go(fragment)
        overflow = view.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (fragment, overflow) == (fragment, 0)
    for box in [link.bounding_box() for link in view.page.locator("nav a").all()]:
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_turns_are_side_by_side_with_the_change_of_the_kernel(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/episode/train/0.0.0?turn=1")
    first, second = (view.page.locator(f"#turn-{turn}") for turn in (0, 1))
    assert first.bounding_box()["y"] == second.bounding_box()["y"]
    assert "feedback on incorrect" in first.inner_text()
    assert second.locator(".del").all_inner_texts() == ["        return x + 0.0.0.0"]
    assert second.locator(".add").all_inner_texts() == ["        return x + 0.0.0.1"]
    assert "advantage 0.25" in second.inner_text()
    assert "correct" in second.locator(".parts").inner_text()


def test_thinking_prompt_and_evaluation_are_folded(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/episode/train/0.0.0")
    first = view.page.locator("#turn-0")
    assert "I think about it." not in first.inner_text()
    first.locator("summary", has_text="Thinking").click()
    first.locator("text='I think about it.'").wait_for()
    first.locator("summary", has_text="Prompt").click()
    first.locator("text='Task starter/1/add'").wait_for()
    first.locator("summary", has_text="Complete log").click()
    first.locator("text='a complete log'").wait_for()


def test_lines_of_a_folded_change_have_the_numbers_of_the_kernel(make_run: Make, open_report: Open) -> None:
    lines = [f"line{number} = {number}" for number in range(1, 31)]
    turns = [
        a_turn((0, 0, 0, 0), "t", Outcome.INCORRECT, source="\n".join(lines)),
        a_turn((0, 0, 0, 1), "t", Outcome.CORRECT, source="\n".join([*lines[:20], "changed = 21", *lines[21:]])),
    ]
    view = open_report(make_run(turns), "#/episode/train/0.0.0?turn=1")
    second = view.page.locator("#turn-1 .kernel")
    assert second.locator(".line").evaluate_all("found => found.map((one) => one.dataset.line)") == [
        *("18", "19", "20", "−", "21", "22", "23", "24")
    ]
    second.locator("text='17 unchanged lines'").click()
    assert second.locator(".line >> nth=0").inner_text() == "line1 = 1"


def test_retrieved_examples_are_listed_with_the_excluded_ones(make_run: Make, open_report: Open) -> None:
    turn = a_turn(
        (0, 0, 0, 0),
        "a/task",
        Outcome.CORRECT,
        examples=(ShownExample("near", "corpus@1", 0.875),),
        excluded_examples=(ExcludedExample("same", "corpus@1", 0.99, "leak_task"),),
    )
    view = open_report(make_run([turn]), "#/episode/train/0.0.0")
    view.page.locator("summary", has_text="Retrieved examples (1 shown, 1 excluded)").click()
    view.page.wait_for_selector(".turn table.plain")
    rows = view.page.locator(".turn table.plain tr").all_inner_texts()
    assert [row.split("\t") for row in rows[1:]] == [
        ["near", "corpus@1", "0.88", "in the prompt"],
        ["same", "corpus@1", "0.99", "excluded: leak task"],
    ]


def test_a_finding_leads_to_its_line(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/suspects")
    view.page.click(".suspect >> nth=0")
    assert "line 5: torch.relu(x)" in view.text(".findings")
    view.page.click("text='line 5'")
    assert view.page.locator(".line.hit").all_inner_texts() == ["        return x + 0.1.0.0"]


LINKS = [
    ("outcome=correct", ["0.0.0.1", "0.1.0.0", "1.0.0.0", "2.0.0.0"]),
    ("outcome=hacked,format_error", ["0.0.1.0", "1.0.1.0"]),
    ("task=SOFT&set=train", ["0.1.0.0", "1.0.0.0", "1.0.1.0", "1.0.2.0"]),
    ("rule=library_compute", ["0.1.0.0"]),
    ("turn=1", ["0.0.0.1"]),
    ("step=1-2", ["1.0.0.0", "1.0.1.0", "1.0.2.0", "2.0.0.0"]),
    ("step=1-", ["1.0.0.0", "1.0.1.0", "1.0.2.0", "2.0.0.0"]),
    ("step=0&set=held-out", ["0.0.0.0"]),
    ("set=train&turn=0&step=0&outcome=incorrect", ["0.0.0.0"]),
    ("repaired=1", ["0.0.0.1"]),
    ("sort=speedup&outcome=correct", ["1.0.0.0", "0.0.0.1", "2.0.0.0", "0.1.0.0"]),
    ("outcome=timeout", []),
]


def test_a_link_selects_samples(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/samples")
    for fragment, expected in LINKS:
        view.go(f"#/samples?{fragment}")
        assert (fragment, view.ids()) == (fragment, expected)
        assert view.text(".count").startswith(f"{len(expected)} of 9 samples")


def test_every_control_of_the_filters_changes_the_link(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/samples")
    page = view.page
    page.click(".chip >> text=correct >> nth=0")
    page.click(".chip >> text=train")
    page.click(".chip >> text='turn 0'")
    page.fill("[aria-label=task]", "softmax")
    page.fill("[aria-label=step]", "0-1")
    page.select_option("[aria-label=rule]", "library_compute")
    page.click(".head >> text=score")
    link = page.url.split("?")[1]
    assert set(link.split("&")) == {
        "outcome=correct",
        "set=train",
        "turn=0",
        "task=softmax",
        "step=0-1",
        "rule=library_compute",
        "sort=score",
    }
    assert view.ids() == ["0.1.0.0"]
    page.click("text=show all")
    assert len(view.ids()) == 9


def test_the_back_button_restores_the_selection(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/samples?outcome=correct")
    view.page.click(".sample >> nth=0")
    view.page.wait_for_selector(".turn")
    view.page.go_back()
    view.page.wait_for_selector(".sample")
    assert len(view.ids()) == 4


def test_keys_move_open_and_return(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/")
    press = view.page.keyboard.press
    press("2")
    view.page.wait_for_selector(".sample")
    for key in ("j", "j", "k", "j"):
        press(key)
    press("Enter")
    view.page.wait_for_selector(".turn")
    assert view.page.url.endswith("#/episode/train/0.0.0?turn=1")
    press("ArrowLeft")
    assert view.page.url.endswith("?turn=0")
    press("ArrowRight")
    press("j")
    assert view.page.url.endswith("#/episode/train/0.0.1?turn=0")
    press("k")
    view.page.wait_for_selector(".toggle-diff")
    assert view.page.locator(".del").count() == 1
    press("d")
    assert view.page.locator(".del").count() == 0
    press("t")
    view.page.locator("#turn-0 >> text='I think about it.'").wait_for()
    press("Escape")
    view.page.wait_for_selector(".sample")
    assert view.page.url.endswith("#/samples")
    press("/")
    view.page.keyboard.type("gelu")
    assert len(view.ids()) == 2
    press("Escape")
    press("?")
    assert view.page.locator("dialog").is_visible()


def test_a_digit_opens_a_page(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/tasks")
    for number, page in enumerate(["/", "/samples", "/tasks", "/best", "/suspects", "/held-out"], 1):
        view.page.keyboard.press(str(number))
        view.page.wait_for_function("page => location.hash === `#${page}`", arg=page)
        view.page.wait_for_selector(f"nav a.on[href='#{page}']")


def test_a_task_shows_its_groups(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/tasks")
    view.page.click(".task >> text=starter/2/softmax")
    assert view.page.locator(".group").count() == 2
    assert view.page.locator(".group >> nth=1").locator(".cell").count() == 3
    view.page.locator(".cell.f-hacked").click()
    view.page.wait_for_selector(".turn")
    assert "result cache" in view.text(".findings")


def test_held_out_evaluations_compare_tasks_over_steps(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), "#/held-out")
    rows = view.page.locator("table.held-out tr").all_inner_texts()
    assert [row.split() for row in rows[1:]] == [
        ["all", "0", "%", "100", "%"],
        ["starter/3/gelu", "0", "%", "100", "%"],
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colour_scheme_and_its_button(make_run: Make, open_report: Open, scheme: str) -> None:
    view = open_report(make_run(), color_scheme=scheme)

    def ground() -> int:
        colour = view.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        return int(colour.split("(")[1].split(",")[0])

    assert (ground() > 128) == (scheme == "light")
    view.page.click("[aria-label='light or dark']")
    assert (ground() > 128) == (scheme == "dark")


def test_a_long_list_has_elements_for_the_rows_in_sight_only(make_run: Make, open_report: Open) -> None:
    turns = [a_turn((step, 0, 0, 0), f"t/{step % 7}", Outcome.INCORRECT) for step in range(400)]
    view = open_report(make_run(turns, []), "#/samples?set=train")
    assert view.page.locator(".sample").count() < 80
    view.page.evaluate("document.querySelector('.list').scrollTop = 1e6")
    view.page.wait_for_selector("text='399.0.0.0'")
    assert view.page.locator(".sample").count() < 80


def test_samples_without_texts_are_listed_and_counted(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(), max_bytes=1)
    assert "9 of 9 samples are listed without their texts" in view.text()
    view.go("#/episode/train/0.0.0?turn=0")
    view.page.wait_for_selector(".notice:not([hidden])")
    assert "kernelrl view demo" in view.text()


def test_the_report_opens_where_only_the_first_samples_have_a_speedup(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run([turn for turn in story() if turn.outcome is Outcome.FORMAT_ERROR], []))
    view.go("#/best")
    assert "The best" not in view.text()
