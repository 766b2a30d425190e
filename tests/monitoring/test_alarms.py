"""Alarms: findings that become frequent, and signs of a collapse."""

from __future__ import annotations

import pytest

from kernelrl_core.monitoring.alarms import (
    Alarms,
    climbing,
    first_word,
    is_repetitive,
    moved,
    negative_log_likelihood,
)
from kernelrl_core.types import (
    Episode,
    Group,
    Outcome,
    Reply,
    Task,
    Turn,
)
from kernelrl_testing.values import make_turn


def turn(text: str, *logprobs: float, thinking: str | None = None) -> Turn:
    reply = Reply(text, tuple(range(len(logprobs))), logprobs, "stop", thinking)
    return make_turn(Outcome.FORMAT_ERROR, reply=reply)


def step(*texts: str) -> list[Group]:
    return [Group(Task("t", ""), tuple(Episode((turn(text),)) for text in texts))]


def rows(*rates: float) -> list[dict[str, float]]:
    return [{"finding/result_cache": rate, "reward/mean": 1.0} if rate else {"reward/mean": 1.0} for rate in rates]


def test_a_rate_that_doubled_is_reported_with_both_means() -> None:
    assert climbing(rows(*[0.02] * 10, 0.1)) == {}
    # Two high steps among the last five: (3 * 0.02 + 2 * 0.1) / 5 = 0.052.
    was, now = climbing(rows(*[0.02] * 10, 0.1, 0.1))["result_cache"]
    assert (round(was, 4), round(now, 4)) == (0.02, 0.052)


def test_the_alarm_of_a_finding() -> None:
    alarms = Alarms()
    lines = [alarms.after(row) for row in rows(*[0.0] * 9, 0.5, 0.5)]
    assert lines[-2] == [
        "alarm: finding 'result_cache': 10% of samples in the last 5 steps, 0% before; "
        "more: kernelrl explain alarm-finding"
    ]
    assert [line for step_lines in (*lines[:-2], lines[-1]) for line in step_lines] == []


def test_a_rate_that_doubled_is_reported_once() -> None:
    assert climbing(rows(*[0.02] * 10, 0.1, 0.1, 0.1)) == {}


def test_a_constant_rate_is_not_reported() -> None:
    assert climbing(rows(*[0.3] * 20)) == {}


def test_a_rare_finding_is_not_reported() -> None:
    assert climbing(rows(*[0.0] * 10, *[0.02] * 5)) == {}


def test_there_is_no_alarm_before_step_10() -> None:
    assert climbing(rows(*[0.0] * 4, *[0.5] * 5)) == {}


def test_a_new_finding_is_reported() -> None:
    assert set(climbing(rows(*[0.0] * 9, 0.3))) == {"result_cache"}


@pytest.mark.parametrize(
    ("text", "thinking", "word"),
    [
        ("Okay, let me see", None, "Okay,"),
        ("<think>\nOkay, so", None, "Okay,"),
        ("[THINK]Okay, so[/THINK]Here", None, "Okay,"),
        ("<|channel|>analysis<|message|>Okay, so", None, "Okay,"),
        ("Okay, so</think>\n\nHere", None, "Okay,"),
        ("<think>\n\n</think>\n\nHere it is", None, "Here"),
        ("```python", "Okay, here", "Okay,"),
        ("   ", None, ""),
    ],
)
def test_the_first_word_is_that_of_the_thinking(text: str, thinking: str | None, word: str) -> None:
    assert first_word(turn(text, thinking=thinking)) == word


def test_openings_drift_from_those_of_the_first_step() -> None:
    """First step: 19 of 20 start with "Okay,", one with "Hmm" (5 %, so usual, too). Later 3 of 4 start otherwise."""
    alarms = Alarms()
    assert alarms.measure(step(*["Okay, well"] * 19, "Hmm"))["collapse/opening_drift"] == 0.0
    later = step("Okay, then", "ĠĠ", "kernel kernel", "The")
    assert alarms.measure(later)["collapse/opening_drift"] == 0.75
    resumed = Alarms()
    resumed.restore({"next_step": 1, **alarms.state()})
    assert resumed.measure(later) == alarms.measure(later)


def test_a_rare_opening_of_the_first_step_is_not_usual() -> None:
    """1 of 21 is 4.8 %."""
    alarms = Alarms()
    assert alarms.measure(step(*["Okay,"] * 20, "Zounds"))["collapse/opening_drift"] == pytest.approx(1 / 21)


def test_a_reply_that_ends_in_a_loop_is_repetitive_and_code_is_not() -> None:
    source = open(__file__).read()  # noqa: SIM115
    assert is_repetitive(source + "the kernel is the kernel is " * 200)
    assert not is_repetitive(source)
    assert not is_repetitive("no no no no")
    assert Alarms().measure(step("so " * 500, source))["collapse/repetition"] == 0.5


def test_the_negative_log_likelihood_is_a_mean_over_all_tokens() -> None:
    """(0.1 + 0.3 + 0.8) / 3 = 0.4 nats over the tokens of both replies."""
    assert negative_log_likelihood([turn("a", -0.1, -0.3), turn("b", -0.8)]) == pytest.approx(0.4)
    assert negative_log_likelihood([turn("c")]) is None


def test_a_level_that_halves_or_doubles_is_reported_once() -> None:
    """Last five: (3 * 1.0 + 2 * 0.2) / 5 = 0.68; one step later (2 * 1.0 + 3 * 0.2) / 5 = 0.52; then 0.36 < 0.5."""
    values = [1.0] * 10 + [0.2] * 6
    found = [moved([{"collapse/nll": v} for v in values[:n]], ["collapse/nll"]) for n in range(len(values) + 1)]
    assert [n for n, what in enumerate(found) if what] == [14]
    was, now = found[14]["collapse/nll"]
    assert (was, now) == pytest.approx((1.0, 0.36))


def test_the_alarms_of_a_collapse() -> None:
    alarms = Alarms()
    rows = [{"collapse/opening_drift": 0.0, "tokens/reply_mean": 100.0}] * 9
    rows += [{"collapse/opening_drift": 0.5, "tokens/reply_mean": 1000.0}]
    lines = [alarms.after(row) for row in rows]
    # (4 * 0 + 0.5) / 5 = 10 %; (4 * 100 + 1000) / 5 = 280.
    assert lines[-1] == [
        "alarm: replies with an unusual first word: 10% in the last 5 steps, 0% before; "
        "more: kernelrl explain alarm-first-word",
        "alarm: tokens per reply: 280 in the last 5 steps, 100 before; more: kernelrl explain alarm-length",
    ]
    assert not any(lines[:-1])
