"""Numbers of a recipe are never silent: every value of every key acts, gets a warning, or is refused."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.planning.load import bundled_recipes, load_recipe
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.blocks import core_keys
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.rules.ranges import RANGES, range_of
from kernelrl_core.recipe.schema import Recipe, Use
from kernelrl_core.recipe.structure import field_types

MINIMAL = (
    "tasks: {use: files}\nbackend: {use: triton}\npolicy: {use: tiny}\n"
    "rewards: {r: {use: bounded}, s: {use: bounded}}\ncheckers: {c: {use: rules}}\neval: {at_end: true, split: train}\n"
)

ZERO_ACTS = {
    "seed": "a seed like any other",
    "evaluation.atol": "no absolute tolerance",
    "evaluation.rtol": "no relative tolerance",
    "evaluation.library_share": "no library work",
    "sampling.extend.after_step": "from the first step on",
    "returns.gamma": "each turn by itself",
    "verdicts.hack_reward": "the default",
    "verify.train": "none, the default",
    "verify.eval": "none, the default",
    "train.warmup_ratio": "none, the default",
    "train.learning_rate_floor": "the default",
    "train.clip_low": "clips every ratio below 1",
    "train.clip_high": "clips every ratio above 1",
    "train.kl": "none, the default",
    "train.coverage_rejection.threshold": "only kernels without a share",
    "train.coverage_rejection.ramp": "a step function",
    "train.beta1": "no mean",
    "train.beta2": "no mean",
    "train.weight_decay": "none, the default",
    "train.staleness": "none, the default",
    "train.refill": "none, the default",
    "curriculum.stages.*.until.above": "the stage ends as soon as it may",
    "curriculum.stages.*.weights.*": "the reward is off in the stage",
    "curriculum.stages.*.levels.*": "a level that no task has is refused",
    "eval.every": "none, the default",
    "eval.temperature": "the most probable token",
    "eval.fast_thresholds.*": "share of correct kernels",
    "cost.prices.prompt": "free",
    "cost.prices.reply": "free",
    "cost.prices.train": "free",
    "cost.prices.gpu_hour": "free",
    "cost.gpu_seconds_per_evaluation": "the estimate counts none",
}
"""Key -> meaning of 0, where 0 is accepted without a warning."""

SURROUNDINGS: Mapping[str, tuple[str, ...]] = {
    "sampling.extend": ("sampling.extend={after_step: 3, max_tokens: 50000}",),
    "episode.stop": ("episode.turns=4", "evaluation.timing=true"),
    "history.keep": ("episode.turns=4",),
    "returns": ("episode.turns=4",),
    "retriever": ("retriever={use: bm25}",),
    "train.clip_low": ("train.loss=ppo",),
    "train.clip_high": ("train.loss=ppo",),
    "train.mismatch": ("train.mismatch={}",),
    "train.coverage_rejection": ("train.coverage_rejection={}", "evaluation.timing=true"),
    "train.staleness": ("train.exact_resume=false",),
    "curriculum.difficulty": ("curriculum={difficulty: {}}",),
    "eval.search": ("eval.search={method: beam}",),
    "eval.fast_thresholds": ("evaluation.timing=true",),
    "evaluation": ("evaluation.timing=true",),
    "verify.trials": ("verify.train=0.5",),
}
"""Key, or the mapping that contains it -> settings with which it acts."""


def numeric_keys(wanted: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, type]]:
    """Dotted path and type of every number below a type."""
    arguments = typing.get_args(wanted)
    origin = typing.get_origin(wanted)
    base = getattr(wanted, "__supertype__", wanted)
    if base in (int, float):
        yield ".".join(path), base
    elif attrs.has(wanted) and issubclass(wanted, Use):
        hints = typing.get_type_hints(wanted)
        for key in core_keys(wanted):
            yield from numeric_keys(hints[key], (*path, key))
    elif attrs.has(wanted):
        for key, inner in field_types(wanted).items():
            yield from numeric_keys(inner, (*path, key))
    elif origin in (tuple, list):
        yield from numeric_keys(arguments[0], (*path, "*"))
    elif origin is dict:
        yield from numeric_keys(arguments[1], (*path, "*"))
    elif origin is not typing.Literal:
        for member in arguments:
            yield from numeric_keys(member, path)


KEYS = dict(numeric_keys(Recipe))


def overrides(key: str, value: str) -> list[str]:
    around = [text for prefix, texts in SURROUNDINGS.items() if key.startswith(prefix) for text in texts]
    if key.startswith("curriculum.stages."):
        inner = key.removeprefix("curriculum.stages.*.")
        written = {
            "levels.*": f"levels: [{value}]",
            "until.above": f"until: {{above: {value}}}",
            "until.over": f"until: {{above: 0.5, over: {value}}}",
            "weights.*": f"weights: {{s: {value}}}",
        }.get(inner, f"{inner}: {value}")
        ends = "" if inner == "max_steps" else "max_steps: 5, "
        return [f"curriculum={{stages: [{{{ends}{written}}}, {{}}]}}"]
    if key.endswith(".*"):
        return [*around, f"{key.removesuffix('.*')}=[{value}]"]
    return [*around, f"{key.replace('rewards.*', 'rewards.s')}={value}"]


def answer(plugins: Registry, folder: Path, key: str, value: str) -> str:
    """`refused`, `warned` or `accepted`."""
    (folder / "r.yaml").write_text(MINIMAL)
    try:
        loaded = load_recipe(str(folder / "r.yaml"), overrides(key, value), registry=plugins)
    except RecipeError:
        return "refused"
    pattern = key.replace("rewards.*", "rewards.s").split(".*")[0]
    warnings = [*loaded.warnings, *loaded.training_warnings]
    return "warned" if any(one.path.startswith(pattern) for one in warnings) else "accepted"


def test_every_number_of_the_schema_has_a_range() -> None:
    assert sorted(KEYS) == sorted(RANGES)


@pytest.mark.parametrize("key", sorted(KEYS))
@pytest.mark.parametrize("value", ["text", "true", "{a: 1}"])
def test_a_value_of_another_type_is_refused(plugins: Registry, tmp_path: Path, key: str, value: str) -> None:
    assert answer(plugins, tmp_path, key, value) == "refused"


@pytest.mark.parametrize("key", sorted(KEYS))
def test_zero_acts_or_is_reported(plugins: Registry, tmp_path: Path, key: str) -> None:
    found = answer(plugins, tmp_path, key, "0")
    assert found in ("refused", "warned") or key in ZERO_ACTS


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_negative_value_acts_only_where_it_has_a_meaning(plugins: Registry, tmp_path: Path, key: str) -> None:
    meant = {"verdicts.hack_reward", "curriculum.stages.*.until.above", "rewards.*.weight", "sampling.top_k"}
    assert answer(plugins, tmp_path, key, "-1") == "refused" or key in {*meant, "curriculum.stages.*.weights.*"}


@pytest.mark.parametrize("key", sorted(key for key, kind in KEYS.items() if kind is float))
def test_a_tiny_value_is_reported(plugins: Registry, tmp_path: Path, key: str) -> None:
    assert answer(plugins, tmp_path, key, "1.0e-300") in ("refused", "warned")


@pytest.mark.parametrize("key", sorted(set(KEYS) - {"seed"}))
def test_a_huge_value_is_reported(plugins: Registry, tmp_path: Path, key: str) -> None:
    value = "1.0e+300" if KEYS[key] is float else str(10**30)
    assert answer(plugins, tmp_path, key, value) in ("refused", "warned")


@pytest.mark.parametrize("name", sorted(bundled_recipes()))
def test_a_bundled_recipe_has_no_warning(name: str) -> None:
    loaded = load_recipe(name, registry=registry())
    assert [str(one) for one in (*loaded.warnings, *loaded.training_warnings)] == []


def test_the_range_of_a_key_is_found_by_its_pattern() -> None:
    assert range_of(("rewards", "correct", "weight")) is RANGES["rewards.*.weight"]
    assert range_of(("rewards", "correct", "penalty")) is None
