"""The pages of metrics and of problems, from the files of `kernelrl_core.recipe.explanations`."""

from __future__ import annotations

import itertools

from docpages.markdown import note, table, wrapped
from kernelrl_core.recipe.explanations import metric_groups, problems


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
        rows = ((f"`{name}`", meaning) for name, meaning in group.metrics.items())
        parts += [f"## {group.title}", group.before.strip(), table(("name", "meaning"), rows), group.after.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


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
