"""The verdict on a run in words: a headline, what rose, what fell, and what to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from kernelrl_report.trends import Trend, direction_of, is_share, points_of, trend_of

__all__ = ["Hint", "Verdict", "verdict"]


@attrs.frozen
class _Quantity:
    name: str
    label: str
    better: int
    """1: higher is better; -1: lower; 0: neither."""


_QUANTITIES = (
    _Quantity("kernel/correct_rate", "correct kernels", 1),
    _Quantity("reward/mean", "mean score", 1),
    _Quantity("multiturn/success_rate", "solved episodes", 1),
    _Quantity("kernel/compile_rate", "built kernels", 1),
    _Quantity("kernel/format_rate", "replies with usable code", 1),
    _Quantity("multiturn/best_speedup_mean", "best speedup of an episode", 1),
    _Quantity("uniform_group_frac", "groups without a learning signal", -1),
    _Quantity("truncated_rate", "replies cut off at the token limit", -1),
    _Quantity("collapse/repetition", "replies that end in repetition", -1),
    _Quantity("outcome/rejected", "rejected kernels", -1),
    _Quantity("outcome/hacked", "hacked results", -1),
    _Quantity("verdict/suspect", "suspect results", -1),
    _Quantity("infra_rate", "lost samples", -1),
    _Quantity("train/mismatch", "mismatch of trainer and sampler", -1),
    _Quantity("train/entropy", "entropy of the policy", 0),
    _Quantity("tokens/reply_mean", "tokens per reply", 0),
)
_HELD_OUT = _Quantity("eval/pass@1", "solved held-out tasks (pass@1)", 1)
_SKIPPED, _UNIFORM, _TRUNCATED, _MISMATCH = 0.2, 0.8, 0.2, 0.1
"""Values from which a metric is worth a look."""
_Z = 1.96
_ALARMS = 3
"""Most alarms in the verdict: the latest ones."""


@attrs.frozen
class Hint:
    """Something to look at."""

    text: str
    link: str = ""
    """Fragment of the page that shows it; may be empty."""


@attrs.frozen
class Verdict:
    """The verdict on a run."""

    headline: str
    tone: Literal["good", "bad", "neutral"]
    rose: tuple[tuple[str, int], ...] = ()
    """Text of a change, and 1 if it is good, -1 if it is bad, 0 if neither."""
    fell: tuple[tuple[str, int], ...] = ()
    look: tuple[Hint, ...] = ()


def verdict(
    state: str,
    error: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    alarms: Sequence[tuple[int, str]] = (),
    suspects: int = 0,
) -> Verdict:
    """The verdict on a run.

    Args:
        state: state of the run.
        error: its error; may be empty.
        rows: metrics of the finished steps.
        alarms: step and line of each alarm.
        suspects: samples that a person should review.
    """
    trends = {one.name: trend_of(points_of(rows, one.name), share=is_share(one.name)) for one in _QUANTITIES}
    held_out = _held_out(rows)
    moved = [(one, trend) for one in _QUANTITIES if (trend := trends[one.name]) is not None and trend.direction]
    moved += [(_HELD_OUT, held_out)] if held_out is not None and held_out.direction else []
    rose = tuple((_change(one, trend), one.better) for one, trend in moved if trend.direction > 0)
    fell = tuple((_change(one, trend), -one.better) for one, trend in moved if trend.direction < 0)
    collapsed = [(one, t) for one in _QUANTITIES[:2] if (t := trends[one.name]) is not None and t.collapsed]
    tone, sentence = _sentence(rows, trends, held_out, collapsed)
    hints = _hints(rows, collapsed, alarms, suspects)
    if state == "running":
        sentence = f"So far: {sentence}"
    if state in ("failed", "killed"):
        tone = "bad"
        reason = f": {error.splitlines()[0]}" if error else ""
        sentence = f"The run {'failed' if state == 'failed' else 'was killed'}{reason}. Until then: {sentence}"
    return Verdict(sentence[0].upper() + sentence[1:] + ".", tone, rose, fell, tuple(hints))


def _sentence(
    rows: Sequence[Mapping[str, Any]],
    trends: Mapping[str, Trend | None],
    held_out: Trend | None,
    collapsed: Sequence[tuple[_Quantity, Trend]],
) -> tuple[Literal["good", "bad", "neutral"], str]:
    if not rows:
        return "neutral", "no step is finished"
    if trends["reward/mean"] is None:
        done = "one step is" if len(rows) == 1 else f"{len(rows)} steps are"
        return "neutral", f"{done} finished, too few for a trend"
    if collapsed:
        one, trend = collapsed[0]
        return "bad", (
            f"the policy collapsed: {one.label} fell from {_text(one, trend.best)} at step {trend.best_step} to "
            f"{_text(one, trend.last)}"
        )
    known = [(one, trend) for one in _QUANTITIES[:2] if (trend := trends[one.name]) is not None]
    for direction, word, tone in ((1, "the policy improved", "good"), (-1, "the policy became worse", "bad")):
        changed = [(one, trend) for one, trend in known if trend.direction == direction]
        if changed:
            one, trend = changed[0]
            verb = "rose" if direction > 0 else "fell"
            text = f"{word}: {one.label} {verb} from {_text(one, trend.first)} to {_text(one, trend.last)}"
            return ("good" if tone == "good" else "bad"), text + _held_out_text(held_out)
    one, trend = known[0]
    skipped = sum(bool(row.get("train/skipped")) for row in rows)
    if skipped > len(rows) / 2:
        return "bad", f"the policy learnt nothing: {skipped} of {len(rows)} steps had no update"
    text = f"no change beyond the noise: {one.label} {_text(one, trend.first)} at first, {_text(one, trend.last)} now"
    return "neutral", text + _held_out_text(held_out)


def _held_out(rows: Sequence[Mapping[str, Any]]) -> Trend | None:
    """The trend of the held-out evaluations; its direction is 0 within the chance of a draw of as many tasks."""
    points = points_of(rows, _HELD_OUT.name)
    trend = trend_of(points, share=True, least_points=2)
    if trend is None:
        return None
    first, last = points[0][1], points[-1][1]
    n_tasks = max((row.get("eval/num_tasks", 0) for row in rows), default=0) or 1
    chance = _Z * ((first * (1 - first) + last * (1 - last)) / n_tasks) ** 0.5
    return attrs.evolve(trend, first=first, last=last, direction=direction_of(first, last, chance))


def _held_out_text(held_out: Trend | None) -> str:
    if held_out is None:
        return ""
    values = f"from {_percent(held_out.first)} to {_percent(held_out.last)}"
    verb = {1: f"rose {values}", -1: f"fell {values}", 0: f"went {values}, which may be chance"}[held_out.direction]
    return f"; {_HELD_OUT.label} {verb}"


def _hints(
    rows: Sequence[Mapping[str, Any]],
    collapsed: Sequence[tuple[_Quantity, Trend]],
    alarms: Sequence[tuple[int, str]],
    suspects: int,
) -> list[Hint]:
    hints = []
    if collapsed:
        _, trend = collapsed[0]
        rate = next((row.get("optim/lr") for row in rows if row["step"] == trend.best_step), None)
        at = f", at learning rate {rate:g}" if rate is not None else ""
        hints.append(
            Hint(
                f"The fall began after step {trend.best_step}{at}: compare the samples before and after; a lower "
                "train.learning_rate is the first thing to try",
                f"#/samples?set=train&step={trend.best_step}-{trend.best_step + 1}",
            )
        )
    skipped = [row["step"] for row in rows if row.get("train/skipped")]
    if rows and len(skipped) >= _SKIPPED * len(rows):
        hints.append(
            Hint(
                f"{len(skipped)} of {len(rows)} steps had no update, because no group had a learning signal",
                f"#/samples?set=train&step={skipped[0]}",
            )
        )
    last = rows[-1] if rows else {}
    if not skipped and last.get("uniform_group_frac", 0) >= _UNIFORM:
        hints.append(
            Hint(f"{_percent(last['uniform_group_frac'])} of the last groups have no learning signal", "#/tasks")
        )
    if last.get("truncated_rate", 0) >= _TRUNCATED:
        hints.append(Hint(f"{_percent(last['truncated_rate'])} of the last replies are cut off at the token limit"))
    if last.get("train/mismatch", 0) >= _MISMATCH:
        hints.append(Hint(f"Trainer and sampler differ by {last['train/mismatch']:.2g} nats per token"))
    lost = sum(bool(row.get("infra_rate")) for row in rows)
    if lost:
        hints.append(
            Hint(f"{lost} of {len(rows)} steps lost samples to infrastructure errors", "#/samples?outcome=infra_error")
        )
    if suspects:
        hints.append(Hint(f"{suspects} samples need a person's review", "#/suspects"))
    latest = alarms[-_ALARMS:]
    hints += [Hint(f"Step {step}, {line}", f"#/samples?set=train&step={step}") for step, line in latest]
    return hints


def _change(one: _Quantity, trend: Trend) -> str:
    return f"{one.label}: {_text(one, trend.first)} → {_text(one, trend.last)}"


def _percent(share: float) -> str:
    """A share in percent, with a digit after the point where it would else look like 0."""
    digits = 1 if 0 < share < 0.01 else 0
    return f"{share * 100:.{digits}f} %"


def _text(one: _Quantity, value: float) -> str:
    if is_share(one.name):
        return _percent(value)
    if one.name == "reward/mean":
        return f"{value:.3f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
