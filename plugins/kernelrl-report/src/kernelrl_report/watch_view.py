"""The view of `kernelrl watch`: lines of text with styles, the same on a terminal, in a pipe and in a picture."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from kernelrl_core.api.monitoring import FINDING_PREFIX, TIME_KINDS, progress_text
from kernelrl_report.observer import RunObserver

__all__ = ["WIDTH", "bar", "curve", "fitted", "printable", "view_lines"]

WIDTH = 100
"""Columns of the view where there is no terminal."""
_LEAST_WIDTH = 60
_LAST = 10
"""Steps of the means of durations and costs."""
_STYLES = {"running": "bold green", "finished": "bold cyan", "stopped": "bold yellow"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL = 17
"""Columns of a label."""

Section = tuple[str, list[Text]]


def _share(value: float) -> str:
    return f"{value:.0%}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


_CURVES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("reward", "reward/mean", lambda value: f"{value:.3f}"),
    ("correct", "kernel/correct_rate", _share),
    ("built", "kernel/compile_rate", _share),
    ("solved episodes", "multiturn/success_rate", _share),
    ("held out, pass@1", "eval/pass@1", _share),
    ("best speedup", "multiturn/best_speedup_max", lambda value: f"{value:.2f}x"),
    ("uniform groups", "uniform_group_frac", _share),
    ("truncated", "truncated_rate", _share),
    ("infra errors", "infra_rate", _share),
    ("broken rules", "kernel/cheat_rate", _share),
    ("tokens per reply", "tokens/reply_mean", _number),
    ("-log p per token", "collapse/nll", _number),
    ("mismatch", "train/mismatch", _number),
)
"""Label, metric and format of each curve, the most important first."""
_OPTIONAL = ("truncated_rate", "infra_rate", "kernel/cheat_rate")
"""Metrics that are only shown where they were not 0."""


def view_lines(observer: RunObserver, width: int) -> list[Text]:
    """All lines of the view, none longer than `width` columns (at least 60)."""
    return _joined(_sections(observer, max(width, _LEAST_WIDTH)), max(width, _LEAST_WIDTH))


def fitted(observer: RunObserver, width: int, height: int) -> list[Text]:
    """The lines of the view that fit on a terminal: the longest sections lose their last lines."""
    sections = _sections(observer, max(width, _LEAST_WIDTH))
    # The head is never shortened.
    while len(lines := _joined(sections, width)) > height and len(sections) > 1:
        longest = max(sections[1:], key=lambda section: len(section[1]))
        longest[1].pop()
        sections = [section for section in sections if section[1]]
    return lines[:height]


def _joined(sections: Sequence[Section], width: int) -> list[Text]:
    lines: list[Text] = []
    for title, body in sections:
        lines += [Text(), Text(title, "bold")] if title else []
        lines += body
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _sections(observer: RunObserver, width: int) -> list[Section]:
    sections = [
        ("", _head(observer, width)),
        (f"{'steps':{_LABEL}}{'first':>9}{'last 5':>9}{'last':>9}   curve", _curves(observer.rows, width)),
        ("where the seconds are spent", _seconds(observer.rows, width)),
        ("findings and alarms", _findings(observer)),
        ("slowest evaluations", _slowest(observer)),
    ]
    return [section for section in sections if section[1]]


def _head(observer: RunObserver, width: int) -> list[Text]:
    state = observer.state
    stopping = ", stops after this step" if (observer.progress or {}).get("stopping") and state == "running" else ""
    lines = [
        Text.assemble(_label("run"), (printable(str(observer.run.path)), "bold")),
        Text.assemble(_label("state"), (state, _STYLES.get(state, "bold red")), stopping),
    ]
    if observer.error:
        lines.append(Text.assemble(_label("error"), (printable(observer.error.splitlines()[0]), "red")))
    rows, total = observer.rows, observer.steps_total
    recent = rows[-_LAST:]
    step_s = _mean(recent, "time/total")
    left = max(total - len(rows), 0) if total is not None else None
    facts = [] if step_s is None else [f"{_duration(step_s)} per step"]
    if step_s is not None and left and state == "running":
        facts.append(f"about {_duration(step_s * left)} left")
    share = len(rows) / total if total else None
    lines.append(_gauge("steps", f"{len(rows)} of {total or '?'}", share, "; ".join(facts), width))
    lines += _now(observer, width)
    lines += _cost(observer, recent, left, width)
    return lines


def _now(observer: RunObserver, width: int) -> list[Text]:
    facts = observer.progress
    if facts is None or observer.state == "finished":
        return []
    if observer.state != "running":
        return [Text.assemble(_label("ended in"), printable(progress_text(facts, ended=True)))]
    if facts["samples_at_most"] is None:
        return [Text.assemble(_label("now"), printable(progress_text(facts)))]
    rates = [f"{facts['correct'] / facts['samples']:.0%} correct"] if facts["samples"] else []
    rates += [f"{facts['samples_per_s']:.2g} samples/s"] if facts["samples_per_s"] is not None else []
    rates += [f"at most {_duration(facts['left_s'])} left"] if facts["left_s"] is not None else []
    share = facts["samples"] / facts["samples_at_most"] if facts["samples_at_most"] else None
    counts = f"{facts['samples']} of {facts['samples_at_most']} samples"
    details = "; ".join(filter(None, [*rates, facts["detail"]]))
    return [_gauge("now", facts["phase"], share, counts, width), Text.assemble(_label(""), printable(details))]


def _cost(observer: RunObserver, recent: Sequence[Mapping[str, Any]], left: int | None, width: int) -> list[Text]:
    rows, budget = observer.rows, observer.budget_usd
    spent = next((row["cost/total_usd"] for row in reversed(rows) if "cost/total_usd" in row), None)
    if spent is None:
        tokens = sum(row.get("cost/reply_tokens", 0.0) for row in rows)
        gpu_s = sum(row.get("cost/gpu_seconds", 0.0) for row in rows)
        if not rows:
            known = "" if budget is None else f"budget {_usd(budget)}; cost known after the first step"
            return [Text.assemble(_label("cost"), known)] if known else []
        gpu = f"; {_duration(gpu_s)} of GPU time" if gpu_s else ""
        return [Text.assemble(_label("cost"), f"{tokens:,.0f} reply tokens{gpu}; nothing has a price")]
    facts = []
    if (per_step := _mean(recent, "cost/usd")) is not None:
        facts.append(f"{_usd(per_step)} per step")
        if left and observer.state == "running":
            facts.append(f"{_usd(spent + per_step * left)} at the end")
    if budget is None:
        return [Text.assemble(_label("cost"), "; ".join([f"{_usd(spent)}, no budget", *facts]))]
    return [
        _gauge(
            "cost", f"{_amount(spent)} of {_usd(budget)}", spent / budget if budget else None, "; ".join(facts), width
        )
    ]


def _curves(rows: Sequence[Mapping[str, Any]], width: int) -> list[Text]:
    lines = []
    for label, name, form in _CURVES:
        known = [(row["step"], float(row[name])) for row in rows if name in row]
        if name == "eval/pass@1" and rows and "eval_start/pass@1" in rows[0]:
            known.insert(0, (-1, float(rows[0]["eval_start/pass@1"])))
        values = [value for _, value in known]
        if not values or (name in _OPTIONAL and not any(values)):
            continue
        cells = [form(values[0]), form(statistics.fmean(values[-5:])), form(values[-1])]
        drawn = curve(values, width - _LABEL - 30)
        lines.append(Text.assemble(_label(label), "".join(f"{cell:>9}" for cell in cells), "   ", (drawn, "cyan")))
    return lines


def _seconds(rows: Sequence[Mapping[str, Any]], width: int) -> list[Text]:
    recent = rows[-_LAST:]
    total = sum(row["time/total"] for row in recent)
    spent = {kind: sum(row.get(f"time/in_{kind}", 0.0) for row in recent) for kind in TIME_KINDS}
    lines = []
    for kind, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        if total and seconds / total >= 0.005:
            lines.append(
                _gauge(
                    kind,
                    f"{seconds / total:.0%}",
                    seconds / total,
                    f"{_duration(seconds / len(recent))} per step",
                    width,
                    5,
                )
            )
    return lines


def _findings(observer: RunObserver) -> list[Text]:
    lines = [
        Text.assemble(_label(f"step {step}"), (printable(line), "bold red")) for step, line in observer.alarms[:-4:-1]
    ]
    for rule, count in observer.findings.most_common():
        shares = [row.get(FINDING_PREFIX + rule, 0.0) for row in observer.rows]
        trend = f", {shares[0]:.0%} of the first step, {shares[-1]:.0%} of the last" if shares else ""
        lines.append(Text.assemble(_label(printable(rule)), f"{count} of {observer.samples} samples{trend}"))
    if observer.suspects:
        lines.append(
            Text.assemble(
                _label("to review"),
                f"{observer.suspects} samples: kernelrl runs suspects {printable(observer.run.name)}",
            )
        )
    return lines


def _slowest(observer: RunObserver) -> list[Text]:
    names = {"build": "building", "run": "trials", "timing": "timing", "no_op": "empty kernel"}
    lines = []
    for slow in observer.slowest[:5]:
        parts = ", ".join(f"{names[key]} {_duration(value)}" for key, value in slow.parts.items() if value >= 0.05)
        line = f"{_duration(slow.seconds):>8}  {slow.task_id}  {slow.sample}  {slow.outcome}"
        lines.append(Text(printable(f"{line}  ({parts})" if parts else line)))
    return lines


def _gauge(label: str, value: str, share: float | None, facts: str, width: int, columns: int = 20) -> Text:
    """A line with label, value, bar and facts."""
    drawn = bar(share, max(min(30, width - 82), 10)) if share is not None else ""
    end = f"  {facts}" if drawn and facts else facts
    return Text.assemble(_label(label), f"{printable(value):<{columns}}", " ", (drawn, "green"), end)


def bar(share: float, columns: int) -> str:
    """A bar for a share between 0 and 1."""
    full = round(min(max(share, 0.0), 1.0) * columns)
    return "█" * full + "░" * (columns - full)


def curve(values: Sequence[float], columns: int) -> str:
    """The values as one line of blocks from the lowest to the highest; means where there are more than columns."""
    if len(values) > columns:
        edges = [round(i * len(values) / columns) for i in range(columns + 1)]
        values = [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(values), max(values)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in values)


def printable(text: str) -> str:
    """Text of models and plugins without control and bidirectional characters, which could change the terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)


def _label(text: str) -> tuple[str, str]:
    return text + " " * max(_LABEL - cell_len(text), 1), "dim"


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return statistics.fmean(values) if values else None


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _amount(usd: float) -> str:
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3f}"


def _usd(usd: float) -> str:
    return f"{_amount(usd)} USD"
