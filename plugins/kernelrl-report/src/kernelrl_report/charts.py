"""The charts of the overview: their curves, and the order in which they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.monitoring import FINDING_PREFIX
from kernelrl_core.api.runs import metric_of
from kernelrl_report.trends import is_share, points_of, trend_of

__all__ = ["HELD_OUT", "charts", "definitions"]

HELD_OUT = "Held-out tasks"
"""Title of the chart that the page draws from the held-out samples."""


@attrs.frozen
class _Chart:
    title: str
    curves: tuple[tuple[str, str], ...]
    """Label and metric of each curve."""
    machine: bool = False
    """The curves describe the machine, not the policy."""


_CHARTS = (
    _Chart("Score of a turn", (("mean", "reward/mean"), ("max", "reward/max"))),
    _Chart(
        "Training tasks",
        (("correct", "kernel/correct_rate"), ("built", "kernel/compile_rate"), ("usable code", "kernel/format_rate")),
    ),
    _Chart(HELD_OUT, (("solved", "eval/pass@1"),)),
    _Chart("Correct kernels by turn", tuple((f"turn {n}", f"multiturn/turn_{n}/correct_rate") for n in range(4))),
    _Chart("Solved episodes", (("solved", "multiturn/success_rate"),)),
    _Chart(
        "Best speedup of an episode", (("mean", "multiturn/best_speedup_mean"), ("max", "multiturn/best_speedup_max"))
    ),
    _Chart(
        "Broken rules",
        (("rejected", "outcome/rejected"), ("hacked", "outcome/hacked"), ("suspect", "verdict/suspect")),
    ),
    _Chart("Groups without a learning signal", (("groups", "uniform_group_frac"),)),
    _Chart(
        "Degenerate replies",
        (("cut off", "truncated_rate"), ("repetitive", "collapse/repetition"), ("unusual", "collapse/opening_drift")),
    ),
    _Chart("Length of a reply", (("mean", "tokens/reply_mean"), ("max", "tokens/reply_max"))),
    _Chart("Loss", (("loss", "train/loss"),)),
    _Chart("Entropy", (("trainer", "train/entropy"), ("sampled tokens", "collapse/nll"))),
    _Chart("Divergence of trainer and sampler", (("KL (k1)", "train/kl"), ("mismatch", "train/mismatch"))),
    _Chart("Divergence from the reference policy", (("KL (k1)", "train/kl_reference"),)),
    _Chart("Gradient norm", (("norm", "train/grad_norm"),)),
    _Chart("Learning rate", (("learning rate", "optim/lr"),)),
    _Chart("Lost samples", (("lost", "infra_rate"),), machine=True),
    _Chart(
        "Duration of a step",
        (("whole", "time/total"), ("rollout", "time/rollout"), ("update", "time/train")),
        machine=True,
    ),
)
_FINDINGS = 4
"""Most rules in the chart of findings."""


def charts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The charts that have values, as plain data: first those that changed, the largest change first; then the flat
    ones. Charts of the machine follow those of the policy.

    Keys: `title`, `unit` and `share` of the vertical axis, `curves` (label and metric), `changed`.
    """
    found = []
    for chart in (*_CHARTS, _findings(rows)):
        curves = [(label, name) for label, name in chart.curves if points_of(rows, name)]
        if not curves:
            continue
        values = [[value for _, value in points_of(rows, name)] for _, name in curves]
        trends = [trend_of(points_of(rows, name), share=is_share(name)) for _, name in curves]
        known = [trend for trend in trends if trend is not None]
        # Too few steps show no trend: then only a chart without a value above 0 is folded.
        changed = any(trend.changed for trend in known) or (not known and any(map(any, values)))
        size = max((trend.size for trend in known if trend.changed), default=0.0)
        metric = metric_of(curves[0][1])
        document = {
            "title": chart.title,
            "unit": metric.unit if metric is not None else "",
            "share": all(is_share(name) for _, name in curves),
            "curves": curves,
            "changed": changed,
        }
        found.append((not changed, chart.machine, -size, document))
    return [document for *_, document in sorted(found, key=lambda one: one[:3])]


def definitions(names: Sequence[str]) -> dict[str, tuple[str, str, str, str]]:
    """Meaning, formula, unit and good range of the metrics that have a definition."""
    known = ((name, metric_of(name)) for name in names)
    return {name: (one.meaning, one.formula, one.unit, one.good) for name, one in known if one is not None}


def _findings(rows: Sequence[Mapping[str, Any]]) -> _Chart:
    """The rules that were broken most often."""
    sums: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(FINDING_PREFIX):
                sums[name] = sums.get(name, 0.0) + value
    most = sorted(sums, key=lambda name: -sums[name])[:_FINDINGS]
    return _Chart("Findings", tuple((name.removeprefix(FINDING_PREFIX), name) for name in most))
