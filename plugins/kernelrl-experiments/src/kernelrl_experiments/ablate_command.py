"""`kernelrl ablate`: measure the effects of changes to a recipe."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import click

from kernelrl_core.cli.output import (
    difference_table,
    print_json,
    print_lines,
    require_output,
    show_warnings,
    table,
)
from kernelrl_core.errors import UsageError
from kernelrl_core.heldout.intervals import detectable_difference, expected_error
from kernelrl_core.heldout.paired import TaskValues, paired_differences, shared_tasks, task_values
from kernelrl_core.heldout.results import read_results
from kernelrl_core.monitoring.costs import Spent, prices_of
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.planning.plan import plan, preflight
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import recipe_uses, require_prerequisites
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.provenance import provenance, retriever_identity
from kernelrl_core.storage import disk_error
from kernelrl_core.tasks.selection import eval_tasks
from kernelrl_core.types import Task, sha256_text
from kernelrl_core.types.serialization import dumps
from kernelrl_experiments.eval_jobs import choose_job

_MAIN = "from kernelrl_core.cli.main import main; main()"
_ASSUMPTION = "80 % power, success rates of the tasks spread evenly over 0 to 1"


@attrs.frozen
class _Arm:
    """The base recipe, or a changed one."""

    name: str
    """`base`; `changed`, or `changed 1`, `changed 2`, …"""
    changes: tuple[str, ...]
    """Changes to the base recipe."""
    overrides: tuple[str, ...]
    recipe: Recipe
    resolved: Mapping[str, Any]
    """The recipe as plain data."""
    stem: str
    """Name of its runs or reports, without the seed. Contains a hash of the recipe and of the index."""


@attrs.frozen
class _Measurement:
    """A held-out evaluation of the comparison, made by an ordinary command."""

    seed: int
    command: tuple[str, ...]
    """Arguments of `kernelrl`. Repeating the command continues it."""
    path: Path
    """Run directory, or report of `kernelrl eval`."""

    def finished(self) -> bool:

        if self.command[0] == "eval":
            return self.path.is_file()
        return (self.path / "recipe.yaml").is_file() and RunDir(self.path).state()[0] == "finished"

    def values(self) -> TaskValues:
        """Values of the tasks in the last held-out evaluation."""
        return task_values(read_results(str(self.path))[0].groups)


def _seeds(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        seeds = tuple(int(item) for item in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of integers, such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise click.BadParameter(f"{text!r} repeats a seed")
    return seeds


@click.command("ablate")
@click.argument("recipe")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--seeds", callback=_seeds, help="Seeds, such as 0,1,2. Default: the seed of the recipe.")
@click.option(
    "--eval-only", is_flag=True, help="Train nothing; evaluate RECIPE, or a run, with and without the change."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file for the result and the values of each task. Never overwrites a file.",
)
@click.option("--dry-run", is_flag=True, help="Print the number of runs and the smallest detectable difference only.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(
    context: click.Context,
    recipe: str,
    changes: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    eval_only: bool,
    output: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compare RECIPE with RECIPE changed by KEY=VALUE: same tasks, seeds and budget.

    A key that is given several times has several values: RECIPE is compared with every combination of the values. Each
    recipe is trained once per seed, as ordinary runs below ./runs. Their held-out evaluations after the last step are
    compared task by task: differences in rates, speedup and reward, with 95 % intervals over tasks. The same command
    again skips finished runs and continues unfinished ones.

    With --eval-only, RECIPE may also be a run, whose last checkpoint is evaluated with and without the changes.

    \b
    Examples:
      kernelrl ablate quickstart_raicl retriever=null --seeds 0,1,2
      kernelrl ablate quickstart train.kl=0.01 train.kl=0.1 train.loss=ppo train.loss=cispo --seeds 0,1 --dry-run
      kernelrl ablate runs/quickstart_raicl retriever=null --eval-only --output ablation.json
    """
    if output is not None:
        require_output(output)
    arms = _arms(recipe, _combinations(changes), eval_only, registry())
    tasks = _same_tasks(arms, registry())
    seeds = seeds or (arms[0].recipe.seed,)
    measurements = {arm.name: [_measurement(arm, recipe, seed, eval_only) for seed in seeds] for arm in arms}
    facts = _plan(recipe, arms, measurements, tasks)
    facts["cost"] = _cost(arms, measurements, eval_only, len(tasks), registry())
    if dry_run:
        if as_json:
            print_json(facts)
        else:
            print_lines(_plan_lines(facts, eval_only))
        return
    for line in _plan_lines(facts, eval_only):
        click.echo(line, err=True)
    # One seed after the other, so that an interrupted comparison has complete ones.
    for of_seed in zip(*measurements.values(), strict=True):
        for measurement in of_seed:
            if code := _finish(measurement):
                click.echo(f"stopped at {measurement.path}; the same command continues", err=True)
                context.exit(code)
    values = {name: [each.values() for each in chosen] for name, chosen in measurements.items()}
    document = _document(facts, values)
    if output is not None:
        _write(output, {**document, **_details(arms[0].recipe, values, registry())})
    if as_json:
        print_json(document)
    else:
        print_lines(_lines(document))


def _combinations(changes: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of one value for each key."""
    by_key: dict[str, list[str]] = {}
    for change in changes:
        of_key = by_key.setdefault(change.partition("=")[0].strip(), [])
        if change not in of_key:
            of_key.append(change)
    return list(itertools.product(*by_key.values()))


def _arms(name: str, combinations: Sequence[tuple[str, ...]], eval_only: bool, registry: Registry) -> list[_Arm]:
    """The base recipe and the changed ones.

    Raises:
        UsageError: an invalid recipe, or changes that change nothing.
        MissingPrerequisite: a prerequisite of one of them is missing.
    """
    arms = [_arm("base", name, (), eval_only, registry)]
    compared = {_without_seed(arms[0].resolved): name}
    for number, changes in enumerate(combinations, 1):
        arm = _arm("changed" if len(combinations) == 1 else f"changed {number}", name, changes, eval_only, registry)
        if (equal := compared.get(_without_seed(arm.resolved))) is not None:
            raise UsageError(
                f"{' '.join(changes)} changes nothing in {equal}",
                fix=f"kernelrl recipes show {name} --resolved",
                see="arguments",
            )
        compared[_without_seed(arm.resolved)] = " ".join((name, *changes))
        arms.append(arm)
    return arms


def _without_seed(resolved: Mapping[str, Any]) -> str:
    return dumps({key: value for key, value in resolved.items() if key != "seed"})


def _arm(arm: str, name: str, changes: tuple[str, ...], eval_only: bool, registry: Registry) -> _Arm:
    if eval_only:
        overrides = changes
        job = choose_job(name, overrides, registry=registry, show=show_warnings)
        recipe, plain, label = job.recipe, job.resolved, job.label
        stem = job.run.name if job.run is not None else Path(name).stem
        require_prerequisites(recipe_uses(recipe), spec_of(recipe), registry)
    else:
        overrides = (*(one for one in changes if not one.startswith("eval.at_end=")), "eval.at_end=true")
        loaded = load_recipe(name, overrides, registry=registry)
        show_warnings(loaded, trains=True)
        recipe, plain, label, stem = loaded.recipe, loaded.resolved, "", loaded.name
        preflight(recipe, registry)
    identity = dumps([json.loads(_without_seed(plain)), label, retriever_identity(recipe, registry)])
    kind = arm.partition(" ")[0]
    return _Arm(arm, changes, overrides, recipe, plain, f"{stem}-{kind}-{sha256_text(identity)[:8]}")


def _same_tasks(arms: Sequence[_Arm], registry: Registry) -> list[Task]:
    """The held-out tasks, which must be the same with all recipes."""
    base, *others = (eval_tasks(registry.make("tasks", arm.recipe.tasks), arm.recipe.eval) for arm in arms)
    identities = [(task.id, task.sha256) for task in base]
    for changed, arm in zip(others, arms[1:], strict=True):
        if [(task.id, task.sha256) for task in changed] != identities:
            selects = f"{' '.join(arm.changes)} selects other held-out tasks"
            raise UsageError(f"{selects}; a comparison needs the same ones")
    return base


def _measurement(arm: _Arm, name: str, seed: int, eval_only: bool) -> _Measurement:
    overrides = (*arm.overrides, f"seed={seed}")
    if eval_only:
        path = Path("runs") / "ablations" / f"{arm.stem}-seed{seed}.json"
        return _Measurement(seed, ("eval", name, *overrides, "--output", str(path)), path)
    path = Path("runs") / f"{arm.stem}-seed{seed}"
    return _Measurement(seed, ("run", name, *overrides, "--name", path.name, "--exist-ok"), path)


def _plan(
    name: str, arms: Sequence[_Arm], measurements: Mapping[str, Sequence[_Measurement]], tasks: Sequence[Task]
) -> dict[str, Any]:
    """Facts that are known before anything is sampled."""
    runs = [
        {"arm": arm, "seed": each.seed, "path": str(each.path), "finished": each.finished()}
        for arm, chosen in measurements.items()
        for each in chosen
    ]
    n_seeds = len(measurements["base"])
    episodes = n_seeds * min(arm.recipe.eval.samples for arm in arms)
    enough = len(tasks) > 1
    return {
        "recipe": name,
        "arms": {arm.name: list(arm.changes) for arm in arms},
        "runs": runs,
        "tasks": len(tasks),
        "episodes_per_task": episodes,
        "expected_detectable": (
            detectable_difference(expected_error(len(tasks), episodes), len(tasks)) if enough else None
        ),
    }


_AMOUNTS = ("reply_tokens_at_most", "prompt_tokens", "train_tokens_at_most", "gpu_seconds", "usd_at_most")


def _cost(
    arms: Sequence[_Arm],
    measurements: Mapping[str, Sequence[_Measurement]],
    eval_only: bool,
    n_tasks: int,
    registry: Registry,
) -> dict[str, float | None]:
    """Amounts of all runs that are not finished, at most; None for one that is not known."""
    total: dict[str, float | None] = dict.fromkeys(_AMOUNTS, 0.0)
    for arm in arms:
        unfinished = sum(not each.finished() for each in measurements[arm.name])
        facts = _of_evaluation(arm.recipe, n_tasks, registry) if eval_only else plan(arm.stem, arm.recipe, registry)
        for key in _AMOUNTS:
            amount, so_far = facts[key], total[key]
            total[key] = None if amount is None or so_far is None else so_far + unfinished * amount
    return total


def _of_evaluation(recipe: Recipe, n_tasks: int, registry: Registry) -> dict[str, float | None]:
    """Amounts of one held-out evaluation, from those of a step."""
    facts = plan("", recipe, registry)
    share = n_tasks * recipe.eval.samples / (recipe.train.tasks_per_step * recipe.train.group_size)
    prices = prices_of(recipe)
    replies, prompts = facts["reply_tokens_per_step_at_most"] * share, facts["prompt_tokens_per_step"] * share
    gpu_seconds = facts["gpu_seconds_per_step"] * share
    spent = Spent(round(prompts), round(replies), gpu_seconds=gpu_seconds)
    return dict(zip(_AMOUNTS, (replies, prompts, 0, gpu_seconds, spent.usd(prices)), strict=True))


def _plan_lines(facts: Mapping[str, Any], eval_only: bool) -> list[str]:
    runs = facts["runs"]
    finished = sum(run["finished"] for run in runs)
    smallest = facts["expected_detectable"]
    detects = "nothing: an interval needs at least two tasks"
    if smallest is not None:
        detects = f"differences of at least {smallest:.2f} in a share ({_ASSUMPTION})"
    return table(
        [
            *((arm, " ".join([facts["recipe"], *changes])) for arm, changes in facts["arms"].items()),
            ("evaluations" if eval_only else "runs", f"{len(runs)}, of which {finished} are finished"),
            ("held-out", f"{facts['tasks']} tasks, {facts['episodes_per_task']} episodes per task with each recipe"),
            ("detects", detects),
            ("cost", _cost_text(facts["cost"])),
        ]
    )


def _cost_text(cost: Mapping[str, float | None]) -> str:
    """The amounts of the runs that are not finished, in words."""
    known = {key: value for key, value in cost.items() if value is not None}
    words = {
        "reply_tokens_at_most": "reply tokens",
        "prompt_tokens": "prompt tokens",
        "train_tokens_at_most": "trained tokens",
    }
    parts = [f"{known[key]:,.0f} {text}" for key, text in words.items() if key in known]
    if known.get("gpu_seconds"):
        parts.append(f"{known['gpu_seconds'] / 3600:.1f} GPU hours")
    parts.append(f"{known['usd_at_most']:,.2f} USD" if "usd_at_most" in known else "no prices set (cost.prices)")
    return f"at most {', '.join(parts)}"


def _finish(measurement: _Measurement) -> int:
    """Start or continue a measurement. Returns the exit code of its command."""
    if measurement.finished():
        click.echo(f"finished: {measurement.path}", err=True)
        return 0
    measurement.path.parent.mkdir(parents=True, exist_ok=True)
    # A process for each, so that a run is not affected by the runs before it. The result of the comparison alone is
    # printed on stdout.
    process = subprocess.Popen([sys.executable, "-c", _MAIN, *measurement.command], stdout=2)
    former = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            with suppress(KeyboardInterrupt):  # the terminal also interrupts the process, which finishes its step
                return process.wait()
    finally:
        signal.signal(signal.SIGTERM, former)


def _document(facts: Mapping[str, Any], values: Mapping[str, Sequence[TaskValues]]) -> dict[str, Any]:
    compared = len(shared_tasks([each for chosen in values.values() for each in chosen]))
    comparisons = [
        {
            "arm": arm,
            "changes": changes,
            "differences": [attrs.asdict(row) for row in paired_differences(values["base"], values[arm])],
        }
        for arm, changes in facts["arms"].items()
        if arm != "base"
    ]
    return {
        **facts,
        "runs": [{**run, "finished": True} for run in facts["runs"]],
        "tasks": compared,
        "tasks_lost": facts["tasks"] - compared,
        "comparisons": comparisons,
    }


def _details(recipe: Recipe, values: Mapping[str, Sequence[TaskValues]], registry: Registry) -> dict[str, Any]:

    return {"values": values, "provenance": provenance(recipe, registry)}


def _write(output: Path, document: Mapping[str, Any]) -> None:

    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise disk_error(output, error) from error
    click.echo(f"written: {output}", err=True)


def _lines(document: Mapping[str, Any]) -> list[str]:
    comparisons = document["comparisons"]
    one = len(comparisons) == 1
    by_changes = {"changed" if one else " ".join(each["changes"]): each["differences"] for each in comparisons}
    lines = difference_table(by_changes, by_seed=True)
    lost = f", {document['tasks_lost']} tasks lost to infrastructure errors" if document["tasks_lost"] else ""
    lines.append(f"{document['tasks']} tasks, {document['episodes_per_task']} episodes per task with each recipe{lost}")
    lines.append("intervals are over tasks; they do not cover the variation between training runs (by seed)")
    if len(comparisons) > 1:
        lines.append("of 20 intervals of changes without effect about one excludes 0; repeat the best change alone")
    return lines
