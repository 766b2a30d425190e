"""Subscribers receive the three events of a run; meters add to the metrics of a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.interfaces.loggers import Logger
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.costs import CostMeter, Spent
from kernelrl_core.monitoring.events import Event, PhaseStarted, StepFinished, TurnFinished
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.monitoring.timeline import TIME_KINDS, Timeline
from kernelrl_core.recipe.schema import PriceSettings
from kernelrl_core.types import Episode, Group, Outcome, Reply, Task
from kernelrl_testing.values import make_turn

TURN = make_turn(Outcome.CORRECT)
METRICS = {"step": 0, "reward/mean": 0.5, "kernel/correct_rate": 0.25, "time/total": 2.0}
EVENTS: tuple[Event, ...] = (
    PhaseStarted("step 1", 8),
    TurnFinished(TURN, "train", {"sample": "0.0.0.0"}),
    TurnFinished(TURN, "eval", {"sample": "1.0.0.0"}),
    StepFinished(METRICS, ({"sample": "0.0.0.0", "advantage": 1.0},), 3),
)


class Recording:
    """A subscriber that records its events."""

    def __init__(self, log: list[tuple[str, Event]], name: str) -> None:
        self.log, self.name = log, name

    def handle(self, event: Event) -> None:
        self.log.append((self.name, event))


class RecordingLogger(Logger):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def start(self, run_dir: Path, recipe: Any, first_step: int) -> None:
        self.calls.append(("start", first_step))

    def turn(self, row: Any) -> None:
        self.calls.append(("turn", row))

    def credits(self, rows: Any) -> None:
        self.calls.append(("credits", rows))

    def step(self, metrics: Any) -> None:
        self.calls.append(("step", metrics))

    def evaluation(self, results: Any) -> None:
        self.calls.append(("evaluation", results))

    def finish(self, state: str) -> None:
        self.calls.append(("finish", state))


def make_monitor(*subscribers: Any, lines: list[str] | None = None, meter: CostMeter | None = None) -> Monitor:
    printed = lines if lines is not None else []
    return Monitor(subscribers, meter or CostMeter(PriceSettings()), Timeline(), printed.append)


def test_every_subscriber_gets_every_event_in_order() -> None:
    log: list[tuple[str, Event]] = []
    monitor = make_monitor(Recording(log, "first"), Recording(log, "second"))
    for event in EVENTS:
        monitor.publish(event)
    assert log == [(name, event) for event in EVENTS for name in ("first", "second")]


def test_loggers_get_turns_of_training_steps_and_evaluations(tmp_path: Path) -> None:
    logger = RecordingLogger()
    threads = LoggerThreads({"mine": logger})
    threads.start(tmp_path, {}, 0, lambda step: ())
    monitor = make_monitor(threads)
    for event in EVENTS:
        monitor.publish(event)
    threads.finish("finished")
    assert logger.calls == [
        ("start", 0),
        ("turn", {"sample": "0.0.0.0"}),
        ("credits", ({"sample": "0.0.0.0", "advantage": 1.0},)),
        ("step", METRICS),
        ("finish", "finished"),
    ]


def test_the_console_prints_a_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = make_monitor(Console())
    for event in EVENTS:
        monitor.publish(event)
    assert capsys.readouterr().err == "step 0 (1 of 3)  reward 0.500  correct 25%  2.0 s\n"


def step(number: int, rate: float) -> StepFinished:
    return StepFinished({"step": number, "truncated_rate": rate, "time/total": 1.0}, (), 20)


def test_an_alarm_is_printed_once_and_after_the_event_is_published() -> None:
    lines: list[str] = []
    log: list[tuple[str, Event]] = []
    monitor = make_monitor(Recording(log, "console"), lines=lines)
    counts = []
    for number in range(14):
        monitor.publish(step(number, 0.0 if number < 7 else 0.5))
        counts.append((len(log), len(lines)))
    assert [line for line in lines if "truncated" in line] == lines
    assert len(lines) == 1
    assert lines[0].startswith("alarm: replies truncated at the token limit: 30% in the last 5 steps, 0% before")
    assert lines[0].endswith("; evidence: samples.jsonl of the run")
    assert counts[9] == (10, 1)


def test_other_events_raise_no_alarm() -> None:
    lines: list[str] = []
    monitor = make_monitor(lines=lines)
    for _ in range(20):
        for event in EVENTS[:3]:
            monitor.publish(event)
    assert lines == []


def test_a_resumed_run_raises_the_alarm_that_an_undisturbed_one_raises() -> None:
    undisturbed: list[str] = []
    monitor = make_monitor(lines=undisturbed)
    for number in range(14):
        monitor.publish(step(number, 0.0 if number < 7 else 0.5))
    lines: list[str] = []
    resumed = make_monitor(lines=lines)
    resumed.restore({}, [step(number, 0.0 if number < 7 else 0.5).metrics for number in range(8)])
    assert lines == []
    for number in range(8, 14):
        resumed.publish(step(number, 0.5))
    assert lines == undisturbed


def groups(text: str) -> list[Group]:
    turns = tuple(make_turn(Outcome.CORRECT, reply=Reply(text, (1,), (-0.5,), "stop")) for _ in range(4))
    return [Group(Task("t", ""), tuple(Episode((turn,)) for turn in turns))]


def test_usual_first_words_are_saved_in_checkpoints() -> None:
    first = make_monitor()
    assert first.state() == {}
    assert first.measure(groups("Sure thing"))["collapse/opening_drift"] == 0.0
    assert first.state() == {"openings": ["Sure"]}
    resumed = make_monitor()
    resumed.restore(first.state(), [])
    assert resumed.measure(groups("Never mind"))["collapse/opening_drift"] == 1.0


def test_a_step_is_booked_with_its_own_cost_and_the_total() -> None:
    meter = CostMeter(PriceSettings(prompt=1e6, reply=2e6))
    monitor = make_monitor(meter=meter)
    meter.add(Spent(prompt_tokens=3, reply_tokens=1))
    first = monitor.book()
    meter.add(Spent(reply_tokens=2))
    second = monitor.book()
    assert [(row["cost/usd"], row["cost/total_usd"]) for row in (first, second)] == [(5.0, 5.0), (4.0, 9.0)]
    assert (second["cost/prompt_tokens"], second["cost/reply_tokens"]) == (0.0, 2.0)


def test_the_time_of_a_step_is_divided_among_its_activities() -> None:
    timeline = Timeline()
    monitor = Monitor((), CostMeter(PriceSettings()), timeline, lambda _: None)
    monitor.start_clock()
    with timeline.span("sampling"):
        sum(range(100_000))
    row = monitor.book()
    parts = {name: value for name, value in row.items() if name.startswith("time/in_")}
    assert set(parts) == {f"time/in_{kind}" for kind in TIME_KINDS}
    assert sum(parts.values()) == pytest.approx(row["time/total"], abs=1e-6)
    assert parts["time/in_sampling"] > 0
    assert monitor.book()["time/in_sampling"] == 0.0


class Remembering(RecordingLogger):
    """A logger that holds the steps up to `held` from an earlier process."""

    def __init__(self, held: int | None) -> None:
        super().__init__()
        self.held = held

    def start(self, run_dir: Path, recipe: Any, first_step: int) -> int | None:
        return self.held


def events_of(logger: Logger, *, first_step: int, recorded: list[int], published: list[int]) -> None:
    """Resume a run at `first_step`, with these steps in its journals, and publish these."""
    threads = LoggerThreads({"mine": logger})
    rows = [({"step": step}, [{"sample": f"{step}.0.0.0"}]) for step in recorded]
    threads.start(Path(), {}, first_step, lambda after: [row for row in rows if row[0]["step"] > after])
    for step in published:
        threads.handle(StepFinished({"step": step, "repeated": 1}, ({"sample": f"{step}.0.0.0"},), 9))
    threads.finish("finished")


@pytest.mark.parametrize(
    ("held", "steps"), [(-1, [0, 1, 2, 3, 4]), (0, [1, 2, 3, 4]), (2, [3, 4]), (3, [4]), (None, [2, 3, 4])]
)
def test_a_resumed_logger_gets_every_step_that_it_lacks_once(held: int | None, steps: list[int]) -> None:
    logger = Remembering(held)
    events_of(logger, first_step=2, recorded=[0, 1, 2], published=[2, 3, 4])
    assert [row["step"] for method, row in logger.calls if method == "step"] == steps
    assert [rows[0]["sample"] for method, rows in logger.calls if method == "credits"] == [f"{n}.0.0.0" for n in steps]


def test_the_recorded_row_of_a_repeated_step_counts() -> None:
    logger = Remembering(0)
    events_of(logger, first_step=1, recorded=[0, 1], published=[1])
    assert [row for method, row in logger.calls if method == "step"] == [{"step": 1}]


def test_held_out_evaluations_reach_a_logger_once_and_before_their_step() -> None:
    logger = RecordingLogger()
    threads = LoggerThreads({"mine": logger})
    threads.start(Path(), {}, 0, lambda step: ())
    metrics = {"step": 0, "reward/mean": 0.5, "eval_start/pass@1": 0.25, "eval/pass@1": 0.75, "time/eval": 1.0}
    threads.handle(StepFinished(metrics, (), 3))
    threads.evaluation({"step": 40, "eval/pass@1": 0.5})
    threads.finish("finished")
    assert logger.calls[1:-1] == [
        ("evaluation", {"step": 0, "eval/pass@1": 0.25}),
        ("evaluation", {"step": 1, "eval/pass@1": 0.75}),
        ("credits", ()),
        ("step", {"step": 0, "reward/mean": 0.5, "time/eval": 1.0}),
        ("evaluation", {"step": 40, "eval/pass@1": 0.5}),
    ]


def test_a_logger_that_cannot_start_gets_no_events(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(RecordingLogger):
        def start(self, run_dir: Path, recipe: Any, first_step: int) -> None:
            raise OSError("no tracker")

    logger = Fails()
    events_of(logger, first_step=0, recorded=[], published=[0, 1])
    assert logger.calls == []
    assert [record.message for record in caplog.records] == [
        "logger 'mine' failed in start; it gets no events, and the run continues"
    ]


class Text(Remembering):
    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int | None:
        return "step 3"  # type: ignore[return-value]


def test_a_logger_that_returns_text_from_start_is_reported_and_gets_no_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = Text(None)
    events_of(logger, first_step=0, recorded=[], published=[0, 1])
    assert "logger 'mine' failed in start" in caplog.text
    assert "start returned 'step 3', not the last step that it has, or None" in caplog.text
    assert logger.calls == []
