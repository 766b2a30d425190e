"""Contradictions between the keys of a recipe are reported before a run starts."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.rules.contradictions import RULES, Rule
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.sources.yaml import parse_value

BASE = "{tasks: {use: files}, backend: {use: triton}, policy: {use: tiny}, rewards: {r: {use: bounded}}}"


def check(plugins: Registry, **parts: str) -> list[str]:
    data: dict[str, Any] = parse_value(BASE) | {key: parse_value(text) for key, text in parts.items()}
    try:
        recipe_from_mapping(data, registry=plugins, name="r")
    except RecipeError as error:
        return [str(problem).removeprefix("r: ") for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rewards": "{r: {use: bounded, timing: true}}"}, "rewards.r: 'bounded' requires run times"),
        ({"episode": "{stop: {speedup: 2}}"}, "episode.stop: no speedup is measured"),
        (
            {"rewards": "{r: {use: bounded, compiled: true}}"},
            "rewards.r: 'bounded' has no effect unless evaluation.baseline",
        ),
        ({"rewards": "{r: {use: bounded, low: -1}}"}, "verdicts.hack_reward: a hack would score 0, more than a wrong"),
        (
            {"rewards": "{r: {use: bounded, low: -1}}", "verdicts": "{hack_reward: -1, suspect: zero}"},
            "verdicts.suspect: a wrong kernel with verdict suspect would score 0",
        ),
        ({"train": "{coverage_rejection: {}}"}, "train.coverage_rejection: the kernels of a call are not timed"),
        ({"curriculum": "{}"}, "curriculum: neither stages nor difficulty is set"),
        ({"curriculum": "{stages: [{levels: [1]}, {}]}"}, "curriculum.stages.0: the stage never ends"),
        ({"curriculum": "{stages: [{levels: [2]}]}"}, "curriculum.stages.0.levels: no task of split 'train' has one"),
        (
            {"tasks": "{use: failing}", "curriculum": "{stages: [{levels: [1]}]}"},
            "tests.conftest:Failing failed in listing split 'train': ValueError: planted",
        ),
        ({"train": "{split: nosuch}"}, "train.split: no split 'nosuch'; known: train; set holdout"),
        ({"eval": "{split: nosuch}"}, "eval.split: no split 'nosuch'; known: train; set holdout"),
        ({"eval": "{at_start: true}"}, "tasks: no split 'held_out'; known: train; set holdout"),
        ({"policy": "{use: tiny, warms: true}"}, "backend: the tasks have no demonstration for backend 'triton'"),
        ({"policy": "{use: tiny, context: 256}"}, "policy: a context of 256 tokens cannot hold a prompt (the"),
        ({"sampling": "{stop: ['']}"}, "sampling.stop: an empty string ends every reply"),
        ({"prompt": "{hardware: {gpu: B900}}"}, "prompt.hardware.gpu: "),
        ({"evaluation": "{atol: -1.0}"}, "evaluation.atol: 'atol' must be >= 0"),
        ({"evaluation": "{excessive_speedup: 0.0}"}, "evaluation.excessive_speedup: 'excessive_speedup' must be > 0"),
        ({"curriculum": "{stages: [{max_steps: 2}]}"}, "curriculum.stages.0: the last stage lasts until the"),
        ({"curriculum": "{stages: [{weights: {rr: 1}}]}"}, "curriculum.stages.0.weights.rr: no reward 'rr'"),
        ({"curriculum": "{stages: [{weights: {r: 0}}]}"}, "curriculum.stages.0.weights: a wrong kernel could score as"),
        ({"evaluation": "{precision: bf16, min_precision: fp32}"}, "evaluation.min_precision: errors"),
        ({"evaluation": "{profile: kernelbench, min_precision: tf32}"}, "evaluation.min_precision: errors"),
        ({"rewards": "{}"}, "rewards: no reward is configured"),
        ({"rewards": "{r: {use: bounded, gap: 0}}"}, "rewards: a wrong kernel could score as much"),
        ({"rewards": "{r: {use: bounded, weight: 0}}"}, "rewards: a wrong kernel could score as much"),
        ({"rewards": "{r: {use: boundless}}"}, "rewards.r: plugin demo: 'boundless' does not declare bounds"),
        ({"train": "{steps: 1, epochs: 2}"}, "train.epochs: train.steps is set, too"),
        ({"train": "{group_size: 4, min_group_size: 5}"}, "train.min_group_size: 5 is more than train.group_size"),
        ({"train": "{group_size: 1, min_group_size: 1}"}, "train.group_size: advantage 'grpo' compares the episodes"),
        ({"train": "{loss: pppo}"}, "train.loss: policy 'tiny' has no loss 'pppo'; did you mean 'ppo'?"),
        (
            {"train": "{ratio: sequence}"},
            "train.ratio: policy 'tiny' with these options supports only ratio token",
        ),
        (
            {"policy": "{use: silent}", "train": "{kl: 0.1}"},
            "train.kl: policy 'silent' gives no log-probabilities of its reference policy",
        ),
        (
            {"policy": "{use: silent}", "train": "{mismatch: {}}"},
            "train.mismatch: policy 'silent' gives no log-probabilities of its current weights",
        ),
        (
            {"policy": "{use: silent}", "train": "{importance_cap: 2.0}"},
            "train.importance_cap: policy 'silent' gives no log-probabilities of its current weights",
        ),
        (
            {"train": "{logprobs_at: sampling}"},
            "train.logprobs_at: policy 'tiny' gives log-probabilities at temperature 1 only; set it to 1",
        ),
        (
            {"train": "{exact_resume: false, staleness: 1, importance_cap: 2.0}"},
            "train.staleness: train.importance_cap compares with the current weights",
        ),
        (
            {"train": "{exact_resume: false, staleness: 1, refill: 1}"},
            "train.staleness: train.refill samples the groups of a step until its update",
        ),
        (
            {"train": "{refill: 1, drop_uniform_groups: false}"},
            "train.refill: no group is replaced, because uniform groups are trained on",
        ),
        (
            {"train": "{keep_best: eval/pass@2}", "eval": "{at_end: true, split: train}"},
            "train.keep_best: 'eval/pass@2' is no result of the held-out evaluation; did you mean 'eval/pass@1'?",
        ),
        (
            {"train": "{keep_best: eval/pass@1}"},
            "train.keep_best: the run makes no held-out evaluation after a step",
        ),
        ({"train": "{learning_rate: 1.0e+300}"}, "train.learning_rate: 1e+300 is above 100"),
        ({"train": "{steps: 100000000000000000000}"}, "train.steps: 1e+20 is more than a run can make"),
        (
            {"rewards": "{r: {use: bounded, reply_tokens: 5000}}"},
            "rewards.r: 'bounded' has no effect on replies of fewer than 5,000 tokens",
        ),
        (
            {"train": "{mismatch: {sequence_low: 2.0, sequence_high: 1.0}}"},
            "train.mismatch.sequence_low: no ratio is between 2 and 1: all would be filtered",
        ),
        (
            {"train": "{exact_resume: true}"},
            "train.exact_resume: replies of policy 'tiny' with these options cannot be",
        ),
        ({"train": "{beta2: 1}"}, "train.beta2: must be below 1"),
        (
            {"train": "{exact_resume: false, staleness: 1, mismatch: {}}"},
            "train.staleness: train.mismatch compares with the current weights",
        ),
        (
            {"train": "{exact_resume: false, staleness: 3, loss: importance_sampling}"},
            "train.staleness: the ratios of importance_sampling are not clipped, and diverge with 3",
        ),
        ({"train": "{loss: ppo, clip_low: 1}"}, "train.clip_low: must be below 1"),
        ({"sampling": "{max_tokens: 9, extend: {after_step: 1, max_tokens: 8}}"}, "sampling.extend.max_tokens: 8 is n"),
        ({"sampling": "{top_p: 0}"}, "sampling.top_p: 0 excludes every token"),
        ({"sampling": "{top_k: 0}"}, "sampling.top_k: cannot sample from 0 tokens"),
        ({"prompt": "{template: ./nowhere.jinja}"}, "prompt.template: "),
        ({"prompt": "{template: kernelrI}"}, "prompt.template: unknown template 'kernelrI'"),
        ({"checkers": "{c: {use: rules}}", "forbid": "[no_kernal]"}, "did you mean 'no_kernel'?"),
        ({"forbid": "[anything]"}, "forbid: the recipe has no checker"),
        (
            {"checkers": "{c: {use: words}}", "forbid": "[]"},
            "checkers.c: plugin demo: checker 'words': rules must be a list or tuple of Rule, got ('sleep',)",
        ),
        (
            {"rewards": "{r: {use: bounded}, s: {use: scoreless, gap: 0.0}}"},
            "rewards.s: plugin demo: the reward 'scoreless' (tests.conftest:Scoreless) lacks the method score; define",
        ),
        (
            {"feedback": "{use: formless}"},
            "feedback: plugin demo: the feedback formatter 'formless' (tests.conftest:Formless) lacks the method",
        ),
        ({"policy": "{use: tiny, width: 2000}"}, "policy: a width above 1000 does not fit"),
        ({"requires": "[no-such-distribution>=1]"}, "requires: no-such-distribution>=1 is not installed"),
        ({"requires": "['kernelrl>=99']"}, "requires: kernelrl>=99 is required"),
        ({"requires": "['%%']"}, "requires: '%%' is not a requirement"),
    ],
)
def test_a_contradiction_is_reported(plugins: Registry, parts: dict[str, str], message: str) -> None:
    found = check(plugins, **parts)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"rewards": "{r: {use: bounded, timing: true}}", "evaluation": "{timing: true}"},
        {"rewards": "{r: {use: bounded}, idle: {use: bounded, timing: true, weight: 0}}"},
        {"rewards": "{r: {use: bounded, weight: 2}, t: {use: bounded, gap: -1.5}}"},
        {"train": "{group_size: 1, min_group_size: 1}", "advantage": "{use: raw}"},
        {"evaluation": "{min_precision: tf32}"},
        {"curriculum": "{stages: [{levels: [1], until: {above: 0.5}}, {weights: {r: 2}}], difficulty: {}}"},
        {"tasks": "{use: elsewhere}", "curriculum": "{stages: [{levels: [7]}]}"},
        {"train": "{coverage_rejection: {}}", "evaluation": "{timing: true}"},
        {"rewards": "{r: {use: bounded, compiled: true}}", "evaluation": "{timing: true, baseline: compile}"},
        {"rewards": "{r: {use: bounded, low: -1}}", "verdicts": "{hack_reward: -1}"},
        {"train": "{steps: 0}"},
        {"train": "{kl: 0.1, mismatch: {}}"},
        {"train": "{exact_resume: false, staleness: 2, loss: importance_sampling}"},
        {"train": "{staleness: 1}"},
        {"train": "{exact_resume: false, staleness: 3, loss: ppo}"},
        {"train": "{epochs: 0.5, warmup_ratio: 1}"},
        {"eval": "{samples: 1, pass_at: [1, 10]}"},
        {"checkers": "{c: {use: rules}}"},
        {"forbid": "[]"},
        {"requires": "['kernelrl>=0.1']"},
        {"tasks": "{use: files, network: true}", "eval": "{split: nosuch}"},
        {"policy": "{use: tiny, context: 257}"},
        {"policy": "{use: tiny, context: 65}", "sampling": "{max_tokens: 64}"},
    ],
)
def test_consistent_keys_are_accepted(plugins: Registry, parts: dict[str, str]) -> None:
    assert check(plugins, **parts) == []


def test_gaps_are_weighted_and_a_negative_weight_counts_the_whole_range(plugins: Registry) -> None:
    # 1 * 1.0 against 0.5 * (2.0 - 0.0): the sum is exactly 0.
    assert check(plugins, rewards="{r: {use: bounded}, t: {use: bounded, weight: -0.5}}")
    assert not check(plugins, rewards="{r: {use: bounded}, t: {use: bounded, weight: -0.49}}")


def test_contradictions_are_reported_together_with_other_mistakes(plugins: Registry) -> None:
    assert (
        len(check(plugins, train="{steps: 1, epochs: 2, group_size: 1, min_group_size: 1}", sampling="{top_pp: 1}"))
        == 3
    )


def test_the_path_of_a_user_template_is_saved_as_absolute(
    plugins: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.jinja").write_text("{% block user %}{{ task }}{% endblock %}")
    data = parse_value(BASE) | {"prompt": {"template": "own.jinja"}}
    loaded = recipe_from_mapping(data, registry=plugins, name="r")
    assert loaded.resolved["prompt"]["template"] == str(tmp_path / "own.jinja")


def test_unknown_splits_are_reported_together(plugins: Registry) -> None:
    found = check(plugins, train="{split: a}", eval="{split: b}")
    assert [problem.partition(":")[0] for problem in found] == ["eval.split", "train.split"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_parameters_of_a_rule_are_recipe_keys_with_the_types_of_the_schema(rule: Rule) -> None:
    schema: dict[str, Any] = {**typing.get_type_hints(Recipe), "registry": Registry}
    hints = typing.get_type_hints(rule)
    for name in inspect.signature(rule).parameters:
        is_named = typing.get_origin(schema[name]) is dict
        assert hints[name] == (Mapping[typing.get_args(schema[name])] if is_named else schema[name])  # type: ignore[misc]
