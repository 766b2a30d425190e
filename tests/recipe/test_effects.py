"""A key that is set and has no effect gets a warning with its origin; the recipe stays valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import Registry

MINIMAL = (
    "tasks: {use: files}\nbackend: {use: triton}\npolicy: {use: tiny}\n"
    "rewards: {r: {use: bounded}}\ncheckers: {c: {use: rules}}\n"
)

ONE_TURN = "has no effect: an episode has one turn (episode.turns)"
NO_LATER_EXAMPLE = "has no effect: no later turn could show an example (episode.turns, prompt.shots)"
UNCLIPPED = "has no effect: importance_sampling clips nothing (train.loss)"
GREEDY = "has no effect: temperature 0 takes the most probable token (sampling.temperature)"
CONTEXT = "has no effect: a reply ends where the context of the policy is full"
FEW_SAMPLES = "has no effect for k above the episodes per task (eval.samples)"
ONE_SEARCH = "has no effect for k above 1: a search is one episode per task (eval.search)"
NO_BEAM = "has no effect: only beam has a width (eval.search.method)"
NO_ISLANDS = "has no effect: only islands has populations (eval.search.method)"
UNTIMED = "has no effect: no run time is measured (evaluation.timing)"
UNVERIFIED = "has no effect: no kernel is verified (verify.train, verify.eval)"
TOO_LATE = "has no effect: the run ends before that step (train.steps)"


def warnings(plugins: Registry, folder: Path, *overrides: str, text: str = "") -> list[str]:
    (folder / "r.yaml").write_text(MINIMAL + text)
    return [str(one) for one in load_recipe(str(folder / "r.yaml"), overrides, registry=plugins).warnings]


@pytest.mark.parametrize(
    ("key", "value", "others", "why"),
    [
        ("history.thinking", "kept", (), ONE_TURN),
        ("history.keep", "{last: 2}", (), ONE_TURN),
        ("history.form", "prompt", (), ONE_TURN),
        ("returns.gamma", "0.3", (), ONE_TURN),
        ("returns.aggregate", "max", (), ONE_TURN),
        ("episode.stop", "correct", (), ONE_TURN),
        ("episode.stop", "{speedup: 2}", ("evaluation.timing=true",), ONE_TURN),
        ("prompt.example_turns", "all", (), NO_LATER_EXAMPLE),
        ("prompt.example_turns", "all", ("episode.turns=2", "prompt.shots=zero"), NO_LATER_EXAMPLE),
        ("train.clip_low", "0.1", ("train.loss=importance_sampling",), UNCLIPPED),
        ("train.clip_high", "0.1", ("train.loss=importance_sampling",), UNCLIPPED),
        ("sampling.top_p", "0.9", ("sampling.temperature=0",), GREEDY),
        ("sampling.top_k", "20", ("sampling.temperature=0",), GREEDY),
        ("evaluation.timing_method", "do_bench", (), UNTIMED),
        ("evaluation.timing_trials", "7", (), UNTIMED),
        ("evaluation.baseline", "compile", (), UNTIMED),
        ("evaluation.excessive_speedup", "3.0", (), UNTIMED),
        ("verify.trials", "3", (), UNVERIFIED),
        ("verify.sizes", "false", (), UNVERIFIED),
        ("sampling.max_tokens", "1000", ("policy.context=1000",), CONTEXT),
        ("eval.pass_at", "[1, 8]", ("eval.samples=7",), FEW_SAMPLES),
        ("eval.pass_at", "[1, 8]", ("eval.samples=8", "eval.search={method: beam}"), ONE_SEARCH),
        ("eval.search.width", "2", ("eval.search.method=refine",), NO_BEAM),
        ("eval.search.islands", "3", ("eval.search.method=refine",), NO_ISLANDS),
        ("sampling.extend", "{after_step: 3, max_tokens: 20000}", ("train.steps=3",), TOO_LATE),
    ],
)
def test_a_key_without_effect_is_reported_with_the_reason(
    plugins: Registry, tmp_path: Path, key: str, value: str, others: tuple[str, ...], why: str
) -> None:
    assert warnings(plugins, tmp_path, f"{key}={value}", *others) == [f"command line: {key}: {why}"]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("episode.turns=2", "history.thinking=summarised", "history.keep={last: 2}", "history.form=prompt"),
        ("episode.turns=2", "returns.gamma=0.3", "returns.aggregate=max", "episode.stop=correct"),
        ("episode.turns=2", "prompt.example_turns=all"),
        ("train.loss=ppo", "train.clip_low=0.1", "train.clip_high=0.1"),
        ("sampling.top_p=0.9", "sampling.top_k=20"),
        ("sampling.max_tokens=999", "policy.context=1000"),
        ("eval.pass_at=[1, 8]", "eval.samples=8"),
        ("eval.search={method: beam, width: 2}",),
        ("evaluation.timing=true", "evaluation.baseline=compile"),
        ("verify.eval=0.5", "verify.sizes=false"),
        ("sampling.extend={after_step: 3, max_tokens: 20000}", "train.steps=4"),
        ("sampling.extend={after_step: 3, max_tokens: 20000}",),
    ],
)
def test_a_key_with_an_effect_gets_no_warning(plugins: Registry, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    assert warnings(plugins, tmp_path, *overrides) == []


def test_a_key_set_to_its_default_gets_no_warning(plugins: Registry, tmp_path: Path) -> None:
    assert warnings(plugins, tmp_path, "history.thinking=stripped", "episode.stop=never") == []


def test_a_key_of_a_file_is_reported_with_file_and_line(plugins: Registry, tmp_path: Path) -> None:
    found = warnings(plugins, tmp_path, text="returns:\n  gamma: 0.3\n")
    assert found == [f"{tmp_path / 'r.yaml'}:7: returns.gamma: {ONE_TURN}"]


def test_every_key_without_effect_is_reported(plugins: Registry, tmp_path: Path) -> None:
    found = warnings(plugins, tmp_path, "returns.gamma=0.3", "sampling.temperature=0", "sampling.top_k=20")
    assert [line.split(": ")[1] for line in found] == ["returns.gamma", "sampling.top_k"]


def test_a_recipe_without_checkers_warns_that_no_rule_applies(plugins: Registry, tmp_path: Path) -> None:
    (found,) = warnings(plugins, tmp_path, "checkers.c=null")
    assert "checkers: the recipe has no checker, so no rule applies" in found
    assert found.endswith(
        "add checkers: {source_rules: {use: source_rules}, evaluation_rules: {use: evaluation_rules}}, or forbid: []"
    )


def test_a_recipe_that_says_that_no_rule_applies_gets_no_warning(plugins: Registry, tmp_path: Path) -> None:
    assert warnings(plugins, tmp_path, "checkers.c=null", "forbid=[]") == []
