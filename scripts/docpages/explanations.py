"""The pages of metrics and of problems, from the files of `kernelrl_core.recipe.explanations`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from urllib.parse import urlsplit

from docpages.markdown import note, table, wrapped
from kernelrl_core.recipe.explanations import Metric, MetricGroup, metric_groups, problems


def metrics_page() -> str:
    """The page with one table per group of metrics."""
    parts = [
        "# Metrics",
        note("kernelrl_core/recipe/explanations/metrics.toml"),
        wrapped(
            "`metrics.jsonl` of a run has one row per step; loggers get the same rows. Names are equal for single-turn "
            "and multi-turn runs. A name is absent from a row where the step has no value for it, such as a speedup "
            'where nothing was timed. `*` means any name. "Sample" means one turn. A sample is valid unless it was '
            "lost to an infrastructure error. `kernelrl explain NAME` prints one metric."
        ),
        wrapped(
            "Symbols: i is a valid sample of the step, with outcome o, score s, return R and advantage A; e is an "
            "episode, g a group; q, p and p_ref are the probabilities of a sampled token under the sampler, the "
            "trainer and the reference policy, at the temperature of `train.logprobs_at`; mean_i, sum_i, max_i and "
            '"share of i" go over all valid samples; |x| is the number of x. "Like" names the metric whose formula, '
            "unit and good range count. A good range is a rule of thumb; any: the metric only describes the step. Each "
            "group names the file that computes it, and a formula its own source where there is another."
        ),
        wrapped(
            "All metrics except `time/*` and `cost/*` depend only on the samples in the order (task, episode, turn), "
            "so a resumed run repeats them exactly."
        ),
        wrapped(
            "Read first: `kernel/correct_rate` (training tasks), `eval/pass@1` (held-out tasks), `uniform_group_frac` "
            "(groups without a learning signal), `infra_rate` (lost samples), `time/in_*` (where the time of a step is "
            "spent)."
        ),
    ]
    for group in metric_groups():
        source = f"Source: `{group.source}`."
        parts += [f"## {group.title}", source, group.before.strip(), *_tables(group), group.after.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _tables(group: MetricGroup) -> Iterator[str]:
    if group.metrics:
        rows = (_row(metric, group.source) for metric in group.metrics)
        yield table(("name", "meaning", "formula", "unit", "good range"), rows)
    if group.outputs:
        yield table(("name", "meaning"), ((f"`{name}`", text) for name, text in group.outputs.items()))


def _row(metric: Metric, source: str) -> tuple[str, ...]:
    if metric.like:
        return (f"`{metric.name}`", metric.meaning, f"like `{metric.like}`", "", "")
    own = "" if metric.source == source else f" ({_source(metric.source)})"
    return (f"`{metric.name}`", metric.meaning, metric.formula + own, metric.unit, metric.good)


def _source(text: str) -> str:
    """A publication as a link; a file as code."""
    if text.startswith("arXiv "):
        return f"[{text}](https://arxiv.org/abs/{text.removeprefix('arXiv ')})"
    if text.startswith("http"):
        return f"[{urlsplit(text).netloc}]({text})"
    return f"`{text}`"


def troubleshooting_page() -> str:
    """The page with one section per problem."""
    parts = [
        "# Troubleshooting",
        note("kernelrl_core/recipe/explanations/problems.toml"),
        wrapped(
            "Every error with a `fix:` ends with the id of its entry here, and so does every alarm of a run. "
            "`kernelrl explain ID` prints the entry without a network:"
        ),
        "```console\n"
        "$ kernelrl resume first\n"
        "kernelrl: run runs/first is in use by another process\n"
        "kernelrl: fix: kernelrl status runs/first\n"
        "kernelrl: more: kernelrl explain run-in-use\n"
        "```",
        wrapped(
            "`kernelrl doctor` checks the machine, `kernelrl validate RECIPE` the recipe, `kernelrl status RUN` the "
            "run; `kernelrl env` lists the facts for a bug report."
        ),
    ]
    for group, entries in itertools.groupby(problems().items(), key=lambda pair: pair[1].group):
        parts.append(f"## {group}")
        for name, one in entries:
            parts += [f"### {name}", one.text]
    return "\n\n".join(parts) + "\n"
