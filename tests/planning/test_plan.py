"""The plan of a run states size, exclusions and algorithm, and takes the same time for any size."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from kernelrl_core.cli.recipes_diff import command as diff_command
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.planning import plan as planning
from kernelrl_core.planning.load import differences_from_base, load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Task


def planned(*overrides: str, name: str = "quickstart") -> dict[str, Any]:
    return planning.plan(name, load_recipe(name, overrides, registry=registry()).recipe, registry())


def rows(facts: dict[str, Any]) -> dict[str, str]:
    return dict(planning.plan_rows(facts))


def test_a_plan_states_the_algorithm() -> None:
    facts = planned(
        "train.loss=ppo", "train.clip_low=0.1", "train.clip_high=0.3", "episode.turns=3", "returns.gamma=0.4",
        "train.learning_rate_schedule=cosine", "train.warmup_ratio=0.1", "train.steps=50", "sampling.temperature=0.8",
        "train.max_grad_norm=0.5", "train.kl=0.05",
    )  # fmt: skip
    found = rows(facts)
    assert found["loss"].startswith("ppo, ratio of each token clipped to 0.9 .. 1.3, length_norm ")
    assert found["loss"].endswith(", KL penalty 0.05")
    assert found["advantage"].endswith(" of returns: sum, gamma 0.4")
    assert found["learning rate"].endswith(", cosine, 5 warm-up steps")
    assert found["optimizer steps per step"] == "1, gradient norm at most 0.5"
    assert found["sampling"].startswith("temperature 0.8, top_p 1, at most ")
    assert (facts["algorithm"]["clip"], facts["algorithm"]["gamma"]) == ([0.9, 1.3], 0.4)


def test_a_plan_says_that_one_warm_up_step_has_no_effect() -> None:
    facts = planned("train.warmup_ratio=0.02", "train.steps=50")
    assert rows(facts)["learning rate"].endswith(", constant, 1 warm-up step, which already has the full rate")


def test_a_plan_of_single_turns_has_no_returns() -> None:
    found = rows(planned("train.loss=importance_sampling"))
    assert "gamma" not in found["advantage"]
    assert "not clipped" in found["loss"]


def test_a_plan_states_the_temperature_of_the_log_probabilities_where_it_is_another_one() -> None:
    assert "log-probabilities" not in rows(planned("sampling.temperature=0.8"))["sampling"]
    at_one = rows(planned("sampling.temperature=0.8", "train.logprobs_at=1"))["sampling"]
    assert ", log-probabilities at temperature 1, at most " in at_one
    assert ", log-probabilities at temperature 1, at most " in rows(planned(name="kevin"))["sampling"]


class Flagged(TaskSource):
    """Three training tasks, of which one passes with zeros and one equals the held-out task."""

    def __init__(self, options: object) -> None:
        pass

    def splits(self) -> tuple[str, ...]:
        return ("train", "held_out")

    def tasks(self, split: str) -> list[Task]:
        if split == "held_out":
            return [Task("h/0", _MODEL.format("relu"), "held_out")]
        return [
            Task("t/0", _MODEL.format("relu")),
            Task("t/1", _MODEL.format("tanh")),
            Task("t/2", _MODEL.format("exp"), flags=("zeros_pass",)),
        ]


_MODEL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{}(x) + 1.0
def get_inputs():
    return [torch.rand(4, 4)]
def get_init_inputs():
    return []
"""


def test_a_plan_lists_the_excluded_tasks_with_numbers_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("quickstart", registry=registry()).recipe
    make = registry().make
    monkeypatch.setattr(
        type(registry()), "make", lambda self, kind, use: Flagged(None) if kind == "tasks" else make(kind, use)
    )
    facts = planning.plan("quickstart", recipe, registry())
    assert (facts["tasks"], facts["tasks_excluded"]) == (1, 2)
    assert facts["excluded"] == [
        "1 of 3 tasks are in quarantine (zeros_pass 1); train.quarantine=false includes them",
        "1 of 2 training tasks equal held-out tasks and are excluded (h/0: t/0); train.decontaminate=false "
        "includes them",
    ]
    notes = planning.plan_notes(facts)
    assert [line for line in facts["excluded"] if line not in notes] == []


def test_sizes_that_need_missing_tasks_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("raicl", "single_turn", "kevin"):
        found = rows(planned(name=name))
        assert found["held out tasks"] == found["held out samples"] == found["tasks excluded"] == "unknown"


@pytest.mark.parametrize("steps", [10, 10**9])
def test_a_plan_takes_the_same_time_for_any_number_of_steps(steps: int) -> None:
    began = time.process_time()
    facts = planned(f"train.steps={steps}", "eval.every=1", "eval.at_start=true")
    assert facts["steps"] == steps
    assert facts["held_out_evaluations"] == steps + 1
    assert facts["reply_tokens_at_most"] > steps * facts["reply_tokens_per_step_at_most"]
    assert time.process_time() - began < 20  # listing 10**9 steps takes minutes


@pytest.mark.parametrize(
    ("settings", "steps", "updates"),
    [
        (EvalSettings(), 6, []),
        (EvalSettings(at_start=True), None, [0]),
        (attrs.evolve(EvalSettings(), every=2, at_end=True), 6, [2, 4, 6]),
        (attrs.evolve(EvalSettings(), every=4, at_end=True, at_start=True), 6, [0, 4, 6]),
        (attrs.evolve(EvalSettings(), every=9), 6, []),
    ],
)
def test_held_out_evaluations_are_counted_as_the_run_makes_them(
    settings: EvalSettings, steps: int | None, updates: list[int]
) -> None:
    found = planning._held_out_updates(settings, steps)
    assert found is not None
    assert [update for part in found for update in part] == updates
    assert [n for n in range(1, (steps or 0) + 1) if settings.is_due(n, steps or 0)] == [n for n in updates if n]


def test_the_number_of_evaluations_is_unknown_where_it_depends_on_the_steps() -> None:
    assert planning._held_out_updates(attrs.evolve(EvalSettings(), every=2), None) is None


def test_a_plan_names_the_differences_from_the_base_recipe() -> None:
    loaded = load_recipe("kevin_tinker", ["train.steps=2"], registry=registry())
    assert differences_from_base(loaded, registry()) == [
        "differs from kevin in policy.model (Qwen/QwQ-32B -> Qwen/Qwen3-32B), train.steps (40 -> 2)"
    ]
    assert differences_from_base(load_recipe("kevin", registry=registry()), registry()) == []


def test_two_recipes_are_compared_key_by_key() -> None:
    done = CliRunner().invoke(diff_command, ["kevin", "kevin_tinker", "train.steps=2"])
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["key", "kevin", "kevin_tinker"],
        ["policy.model", "Qwen/QwQ-32B", "Qwen/Qwen3-32B"],
        ["train.steps", "40", "2"],
    ]
    as_json = json.loads(CliRunner().invoke(diff_command, ["kevin", "kevin_tinker", "--json"]).stdout)
    assert as_json["differences"] == [{"key": "policy.model", "a": "Qwen/QwQ-32B", "b": "Qwen/Qwen3-32B"}]
    assert CliRunner().invoke(diff_command, ["kevin", "kevin"]).stdout == "kevin and kevin are equal\n"
