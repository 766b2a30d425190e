"""Division of the time of a step among activities, on times given by hand."""

from __future__ import annotations

import attrs
import pytest

from kernelrl_core.monitoring.timeline import Span, Timeline, shares_text


def timeline(*spans: Span) -> Timeline:
    made = Timeline()
    made._spans.extend(spans)
    return made


def test_a_second_is_divided_equally_among_the_activities_in_progress() -> None:
    """0-2 sampling, 2-4 sampling and training, 4-6 none, 6-8 two sampling and one evaluating: 2 + 1 + 4/3 sampling,
    1 training, 2/3 evaluating, 2 core."""
    shares = timeline(
        Span("sampling", 0.0, end=4.0),
        Span("training", 2.0, end=4.0),
        Span("sampling", 6.0, end=8.0),
        Span("sampling", 6.0, end=8.0),
        Span("evaluating", 6.0, end=8.0),
    ).shares(0.0, 8.0)
    assert shares["sampling"] == pytest.approx(3 + 4 / 3)
    assert (shares["training"], shares["core"]) == (1.0, 2.0)
    assert shares["evaluating"] == pytest.approx(2 / 3)
    assert sum(shares.values()) == pytest.approx(8.0)


def test_an_evaluation_is_divided_into_its_parts() -> None:
    evaluation = Span("evaluating", 1.0, (("waiting", 3.0), ("building", 4.0), ("evaluating", 6.0)), end=6.0)
    shares = timeline(evaluation).shares(0.0, 6.0)
    assert {key: value for key, value in shares.items() if value} == {
        "core": 1.0,
        "waiting": 2.0,
        "building": 1.0,
        "evaluating": 2.0,
    }


def test_an_activity_in_progress_counts_in_both_steps() -> None:
    made = timeline(Span("sampling", 1.0))
    assert made.shares(0.0, 3.0)["sampling"] == 2.0
    made._spans[0] = attrs.evolve(made._spans[0], end=4.0)
    assert made.shares(3.0, 5.0)["sampling"] == 1.0
    assert not made._spans


def test_the_larger_parts_come_first() -> None:
    assert shares_text({"sampling": 2.0, "core": 0.1, "evaluating": 7.9}, 10.0) == " (evaluating 79%, sampling 20%)"
    assert shares_text({"waiting": 2.0}, 4.0) == " (queued for a worker or device 50%)"
    assert shares_text({}, 0.0) == ""
