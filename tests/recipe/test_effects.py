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
        ("verify.sizes", "true", (), UNVERIFIED),
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
        ("verify.eval=0.5", "verify.sizes=true"),
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


def training_warnings(plugins: Registry, folder: Path, *overrides: str) -> list[str]:
    (folder / "r.yaml").write_text(MINIMAL)
    return [str(one) for one in load_recipe(str(folder / "r.yaml"), overrides, registry=plugins).training_warnings]


NO_EVALUATION = "in training: the run makes no held-out evaluation (eval.every, eval.at_start, eval.at_end)"


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (("sampling.temperature=0",), "sampling.temperature: is 0: all replies to a prompt are equal"),
        (("train.learning_rate=0",), "train.learning_rate: is 0: the policy learns nothing"),
        (("train.steps=0",), "train.steps: is 0: the policy learns nothing"),
        (("rewards.s={use: bounded, weight: 0}",), "rewards.s.weight: is 0: the reward is recorded and has no effect"),
        (("eval.samples=99",), f"eval.samples: has no effect {NO_EVALUATION}"),
        (("eval.max_tasks=1",), f"eval.max_tasks: has no effect {NO_EVALUATION}"),
        (
            ("eval.split=train", "eval.every=500", "eval.at_end=true", "train.steps=60"),
            "eval.every: has no effect: the run ends before (train.steps)",
        ),
        (
            ("eval.split=train", "eval.at_end=true", "eval.temperature=0", "eval.samples=8"),
            "eval.samples: has no effect above 1: at temperature 0 all episodes of a task are equal",
        ),
        (("train.substeps=9",), "train.substeps: has no effect above the number of training samples of a step"),
        (
            ("train.warmup_ratio=0.03", "train.steps=6"),
            "train.warmup_ratio: has no effect: the share is less than one step (train.steps)",
        ),
        (
            ("train.learning_rate_floor=0.1",),
            "train.learning_rate_floor: has no effect: the learning rate does not fall",
        ),
        (("train.checkpoint_every=9", "train.steps=6"), "train.checkpoint_every: has no effect: the run ends before"),
        (("sampling.concurrency=8",), "sampling.concurrency: has no effect: a step has no more episodes"),
        (("history.keep={last: 2}", "episode.turns=3"), "history.keep: has no effect: an episode has no more earlier"),
        (
            ("eval.split=train", "eval.at_end=true", "eval.max_tasks=5"),
            "eval.max_tasks: has no effect: split 'train' has 1 tasks",
        ),
    ],
)
def test_a_setting_without_effect_in_training_is_reported(
    plugins: Registry, tmp_path: Path, overrides: tuple[str, ...], warning: str
) -> None:
    # The split has one task, and a step 8 episodes.
    (found,) = training_warnings(plugins, tmp_path, "train.tasks_per_step=1", *overrides)
    assert warning in found


def test_a_batch_larger_than_the_split_is_reported(plugins: Registry, tmp_path: Path) -> None:
    assert training_warnings(plugins, tmp_path, "train.tasks_per_step=500") == [
        "command line: train.tasks_per_step: 500 is more than the 1 tasks of the split: tasks repeat in a batch"
    ]


def test_an_option_that_is_idle_beside_another_is_reported(plugins: Registry, tmp_path: Path) -> None:
    found = warnings(plugins, tmp_path, "policy.model=m", "policy.width=9")
    assert found == ["command line: policy.width: has no effect: the model has its own width"]
    assert warnings(plugins, tmp_path, "policy.width=9") == []
