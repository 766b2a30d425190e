"""Texts of models, kernels and tasks are shown as text, whatever they contain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from report_runs import a_turn, metrics_row

from kernelrl_core.api.checkers import Finding, Severity, Verdict
from kernelrl_core.api.episodes import Score, ShownExample
from kernelrl_core.api.policies import Message, Prompt
from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.values import make_reply

Make = Callable[..., RunDir]
Open = Callable[..., Any]

MARKUP = (
    "</script></pre></style><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
    "<svg onload='window.ran = 1'><iframe srcdoc='<script>parent.ran = 1</script>'></iframe>"
    "<!--<script>]]>\"'`${window.ran = 1}<a href='javascript:window.ran = 1'>here</a>"
)
ODD = "zero\x00 escape\x1b[31m bidi\u202e\u2066 \ufeff\u200b lone\ud800 line\u2028"
LINE = "x" * 1_000_000


def hostile(text: str) -> list[Any]:
    suspect = Finding(text[:200], Severity.SUSPECT, text, 1, text[:50])
    return [
        a_turn(
            (0, 0, 0, turn),
            text[:200],
            Outcome.CORRECT,
            source=f"{turn} {text}\n{text}",
            reply=make_reply(text, 3, thinking=text),
            prompt=Prompt((Message("user", text), Message("assistant", text)), (1,), text),
            findings=(suspect,),
            verdict=Verdict.SUSPECT,
            feedback=f"f{text}",
            message=text,
            score=Score(1.0, {text[:100]: 1.0}),
            examples=(ShownExample(text[:100], text[:100], 0.5),),
            speedup=1.5,
        )
        for turn in range(2)
    ]


def visit(view: Any) -> str:
    """Open every page and everything that is folded; the texts of all."""
    seen = []
    pages = ["#/", "#/samples", "#/tasks", "#/best", "#/suspects", "#/held-out", "#/episode/train/0.0.0?turn=1"]
    for fragment in pages:
        view.go(fragment)
        for _ in range(3):
            view.page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            view.page.wait_for_timeout(50)
        seen.append(view.text())
    view.go("#/tasks")
    view.page.click("a.task >> nth=0")
    seen.append(view.text())
    assert view.page.evaluate("window.ran") is None
    assert view.page.locator("main :is(script, img, iframe, object, embed, form, style)").count() == 0
    assert view.page.locator("a[href^='javascript']").count() == 0
    return "\n".join(seen)


def test_markup_stays_text(make_run: Make, open_report: Open) -> None:
    rows = [metrics_row(0, **{MARKUP: 1.0}), metrics_row(1, **{MARKUP: 2.0})]
    text = visit(open_report(make_run(hostile(MARKUP), metrics=rows)))
    assert MARKUP[:40] in text


def test_control_and_bidirectional_characters_are_visible(make_run: Make, open_report: Open) -> None:
    text = visit(open_report(make_run(hostile(ODD))))
    assert "zero␀ escape␛[31m bidi⟨U+202E⟩⟨U+2066⟩ ⟨U+FEFF⟩⟨U+200B⟩ lone⟨U+D800⟩ line⟨U+2028⟩" in text
    assert "\u202e" not in text


def test_a_megabyte_on_one_line_is_shown_in_parts(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run(hostile(LINE)))
    assert len(visit(view)) < 1_000_000
    view.go("#/episode/train/0.0.0?turn=1")
    view.page.wait_for_selector(".more")
    assert "more characters" in view.text()


def test_the_report_permits_its_own_script_only(make_run: Make, open_report: Open) -> None:
    view = open_report(make_run())
    view.page.evaluate(
        "const element = document.createElement('script');"
        "element.textContent = 'window.ran = 1'; document.body.append(element)"
    )
    assert view.page.evaluate("window.ran") is None
    assert [error for error in view.errors if "Content Security Policy" in error]
    view.errors.clear()
