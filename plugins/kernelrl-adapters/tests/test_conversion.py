"""Configurations of kernel-rl and kernelbench-tinker become recipes that load, and no key is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelrl_adapters.conversion import Conversion, convert, read_configuration, recipe_text
from kernelrl_adapters.conversion.keys import DATASET, KEYS, PRESETS
from kernelrl_core.api.components import RecipeError, registry
from kernelrl_core.api.episodes import Recipe, load_recipe
from kernelrl_core.api.errors import UsageError
from kernelrl_testing.core import parse

MULTI_TURN = """
model_name: Qwen/Qwen3-8B
lora_rank: 16
learning_rate: 0.000003
max_tokens: 8192
temperature: 0.8
top_p: 0.9
seed: 7
max_tokens_extended: 12288
max_tokens_extend_after_step: 20
multiturn: {enabled: true, n: 3, gamma: 0.6, aggregation: max, early_stop_on_correct: true, speedup_threshold: 2.0}
num_substeps: 2
loss_fn: ppo
max_grad_norm: 0.1
warmup_ratio: 0.05
clip_epsilon_low: 0.1
clip_epsilon_high: 0.3
constant_length_norm: 8192
remove_constant_reward_groups: true
log_path: ./runs/refine
save_every: 2
wandb_project: kernels
wandb_name: refine-1
dataset_builder:
  levels: [1, 2]
  level: 1
  backend: cuda
  kevin_prompt: true
  inject_think_token: true
  batch_size: 6
  group_size: 12
  num_epochs: 3
  holdout_indices: {1: [3, 10], 2: [20]}
  renderer_name: qwen3
  prompt_max_tokens: 6000
  num_correct_trials: 2
  measure_performance: true
  num_perf_trials: 20
  check_for_excessive_speedup: false
  modal_gpu_type: H100
  modal_timeout: 200.0
  reward_correctness_weight: 0.4
  reward_speed_weight: 0.9
  reward_speed_max_reward: 50.0
  reward_static_checker_strict: [cuda_impl, code_bypass]
"""
RETRIEVAL = """
model_name: Qwen/Qwen3-30B-A3B
mode: multi_turn
max_turns: 4
gamma: 0.4
eval_every: 10
kl_penalty_coef: 0.0
tensorboard_enabled: false
dataset_builder:
  level: 2
  start_problem: 5
  end_problem: 60
  dataset_src: local
  batch_size: 2
  prompt_option: raicl
  rag_index_path: ./my_index
  raicl_k: 2
  measure_performance: true
  reward_speed_weight: 0.35
  reward_thinking_weight: 0.0
  use_modal: false
  test_fraction: 0.2
"""


def converted(tmp_path: Path, text: str, *overrides: str, system: str = "") -> tuple[Conversion, Recipe, str]:
    """The conversion of a YAML text, the recipe loaded from the file that it gives, and the text of that file."""
    path = tmp_path / "theirs.yaml"
    path.write_text(text, encoding="utf-8")
    done = convert(read_configuration(path, overrides, system))
    ours = tmp_path / "ours.yaml"
    ours.write_text(recipe_text(done, str(ours)), encoding="utf-8")
    assert parse(ours.read_text(encoding="utf-8")).data == done.recipe
    return done, load_recipe(str(ours), registry=registry()).recipe, ours.read_text(encoding="utf-8")


def test_a_multi_turn_configuration_of_kernelbench_tinker(tmp_path: Path) -> None:
    done, recipe, text = converted(tmp_path, MULTI_TURN)
    assert done.configuration.system == "kernelbench-tinker"
    tasks, train = recipe.tasks.options, recipe.train
    assert (tasks.levels, tasks.holdout.level1, tasks.holdout.level2) == ((1, 2), (3, 10), (20,))
    assert (recipe.seed, recipe.backend.use, recipe.policy.use, recipe.evaluator.use) == (7, "cuda", "tinker", "modal")
    assert (recipe.policy.options.model, recipe.policy.options.lora_rank) == ("Qwen/Qwen3-8B", 16)
    assert (recipe.evaluator.options.gpu, recipe.evaluation.timeout_s) == ("H100", 200.0)
    assert (recipe.episode.turns, recipe.episode.stop.speedup) == (3, 2.0)
    assert (recipe.returns.gamma, recipe.returns.aggregate) == (0.6, "max")
    assert (recipe.sampling.extend.after_step, recipe.sampling.extend.max_tokens) == (20, 12288)
    assert (recipe.evaluation.trials, recipe.evaluation.timing_trials, recipe.evaluation.timing) == (2, 20, True)
    assert recipe.evaluation.excessive_speedup is None
    assert {name: use.weight for name, use in recipe.rewards.items()} == {"correct": 0.4, "speed": 0.9}
    assert (recipe.rewards["speed"].options.baseline, recipe.rewards["speed"].options.cap) == (0.0, 50.0)
    assert recipe.forbid == ("no_kernel", "fallback", "inherited_reference")
    assert (train.tasks_per_step, train.group_size, train.epochs, train.checkpoint_every) == (6, 12, 3, 2)
    assert (train.loss, train.clip_low, train.clip_high, train.length_norm) == ("ppo", 0.1, 0.3, 8192)
    assert (train.learning_rate, train.warmup_ratio, train.max_grad_norm, train.substeps) == (3e-6, 0.05, 0.1, 2)
    assert (recipe.prompt.template, recipe.prompt.think_prefix, recipe.prompt.max_tokens) == ("kevin", True, 6000)
    assert recipe.loggers["wandb"].options.project == "kernels"
    assert "#   wandb_name: refine-1\n#     a run has the name of its directory" in text
    assert "--name refine\n" in text


def test_a_retrieval_configuration_of_kernel_rl(tmp_path: Path) -> None:
    done, recipe, text = converted(tmp_path, RETRIEVAL)
    assert done.configuration.system == "kernel-rl"
    assert (recipe.evaluator.use, recipe.tasks.options.source) == ("local", "local")
    assert (recipe.tasks.options.start, recipe.tasks.options.end) == (5, 60)
    assert recipe.tasks.options.holdout.fraction == 0.2
    assert recipe.retriever is not None
    assert (recipe.retriever.options.index.name, recipe.retriever.k, recipe.retriever.turns) == ("my_index", 2, "all")
    assert (recipe.episode.turns, recipe.episode.stop, recipe.history.form) == (4, "correct", "prompt")
    # Defaults of kernel-rl where the file sets nothing.
    assert {name: use.weight for name, use in recipe.rewards.items()} == {
        "correct": 1.0,
        "speed": 0.35,
        "format": 0.1,
        "compile": 0.2,
        "brief": 0.05,
    }
    assert recipe.rewards["speed"].options.baseline == 1.0
    assert (recipe.train.group_size, recipe.train.learning_rate, recipe.loggers) == (4, 1e-4, {})
    assert "#   eval_every: 10\n#     had no effect; eval.every evaluates" in text


def test_defaults_are_those_of_the_other_system(tmp_path: Path) -> None:
    _, recipe, _ = converted(tmp_path, "dataset_builder: {level: 1}")
    assert (recipe.train.tasks_per_step, recipe.train.group_size, recipe.train.learning_rate) == (4, 4, 1e-4)
    assert (recipe.train.checkpoint_every, recipe.train.length_norm) == (10, "none")
    assert recipe.policy.options.model == "Qwen/Qwen2.5-Coder-7B-Instruct"
    # Without a measured run time the weight of speed added nothing.
    assert list(recipe.rewards) == ["correct"]


@pytest.mark.parametrize("preset", [name for name in PRESETS if PRESETS[name]])
def test_a_preset_replaces_the_weights(tmp_path: Path, preset: str) -> None:
    text = f"dataset_builder: {{reward_preset: {preset}, measure_performance: true, reward_speed_weight: 9.0}}"
    done, recipe, _ = converted(tmp_path, text)
    weights = {name: value for name, value in PRESETS[preset].items() if name != "partial"}
    assert {name: use.weight for name, use in recipe.rewards.items()} == weights
    assert "dataset_builder.reward_speed_weight" in done.homeless


def test_overrides_win_and_may_be_wildcards_or_none(tmp_path: Path) -> None:
    overrides = ("dataset_builder.batch_size=3", "...group_size=5", "seed=None", "multiturn.n=8")
    _, recipe, _ = converted(tmp_path, MULTI_TURN, *overrides)
    assert (recipe.train.tasks_per_step, recipe.train.group_size) == (3, 5)
    assert (recipe.seed, recipe.episode.turns) == (0, 8)


def test_dotted_keys_and_the_builder_of_the_multi_turn_mode(tmp_path: Path) -> None:
    text = "mode: multi_turn\ndataset_builder.level: 3\nmultiturn_dataset_builder: {group_size: 6, level: 4}\n"
    done, recipe, text = converted(tmp_path, text)
    assert (recipe.tasks.options.levels, recipe.train.group_size) == ((3,), 6)
    assert "multiturn_dataset_builder.level" in done.homeless
    assert "dataset_builder.group_size" in done.placed


def test_the_system_can_be_named(tmp_path: Path) -> None:
    text = "dataset_builder: {measure_performance: true}"
    assert converted(tmp_path, text)[0].configuration.system == "kernelbench-tinker"
    _, recipe, _ = converted(tmp_path, text, system="kernel-rl")
    assert recipe.rewards["correct"].weight == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_nam: a\nlr: 1\nx: 2", "0 of its 3 keys are theirs; nearest: 'model_nam' is like 'model_name' of"),
        ("actor: {lr: 1}\ntrainer: {epochs: 2}\nseed: 3", "1 of its 3 keys are theirs"),
        ("tasks: {use: starter}\npolicy: {use: torch}", "is a recipe of kernelrl"),
        ("extends: kevin.yaml\nseed: 3", "is a recipe of kernelrl"),
        ("# nothing", "belongs to neither kernel-rl nor kernelbench-tinker: it is empty"),
    ],
)
def test_a_file_of_neither_system_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        converted(tmp_path, text)
    assert message in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.fix


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset_builder:\n  batch_size: eight", "theirs.yaml:2: dataset_builder.batch_size: expected an integer"),
        ("lora_rank: 1.5", "theirs.yaml:1: lora_rank: expected an integer, got 1.5"),
        ("temperature: .inf\nlora_rank: .inf", "theirs.yaml:2: lora_rank: expected an integer"),
        ("mode: several", "theirs.yaml:1: mode: expected single_turn or multi_turn, got 'several'"),
        ("dataset_builder: {holdout_indices: [1]}", "expected lists of task numbers by level"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message.replace("(", r"\(")):
        converted(tmp_path, text)


def test_a_wildcard_must_mean_one_key(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"it may be gamma or multiturn\.gamma"):
        converted(tmp_path, MULTI_TURN, "...gamma=0.5")


VALUES: dict[str, Any] = {
    "seed": st.integers(0, 10**6),
    "top_p": st.floats(0.1, 1.0),
    "temperature": st.floats(0.0, 2.0),
    "mode": st.sampled_from(["single_turn", "multi_turn"]),
    "loss_fn": st.sampled_from(["importance_sampling", "ppo", "cispo"]),
    "max_tokens": st.integers(16, 20000),
    "max_tokens_extended": st.sampled_from([0, 32768]),
    "multiturn.aggregation": st.sampled_from(["sum", "max"]),
    "load_checkpoint_path": st.sampled_from(["tinker://a/b", "./runs/a"]),
    "base_url": st.just("http://127.0.0.1:8124"),
    "dataset_builder.level": st.integers(1, 4),
    "dataset_builder.levels": st.lists(st.integers(1, 4), unique=True),
    "dataset_builder.start_problem": st.integers(1, 10),
    "dataset_builder.end_problem": st.integers(10, 100),
    "dataset_builder.dataset_src": st.sampled_from(["huggingface", "local"]),
    "dataset_builder.backend": st.sampled_from(["triton", "cuda", "hip", "cute", "tilelang"]),
    "dataset_builder.gpu_arch": st.just(["gfx942"]),
    "dataset_builder.group_size": st.integers(2, 64),
    "dataset_builder.holdout_indices": st.dictionaries(st.integers(1, 4), st.lists(st.integers(1, 50), min_size=1)),
    "dataset_builder.precision": st.sampled_from(["fp32", "fp16", "bf16"]),
    "dataset_builder.prompt_precision": st.sampled_from(["fp32", "fp16", "bf16"]),
    "dataset_builder.prompt_option": st.sampled_from(["zero_shot", "one_shot", "few_shot", "raicl"]),
    "dataset_builder.prompt_gpu_name": st.just("H100"),
    "dataset_builder.prompt_max_tokens": st.integers(8000, 32000),
    "dataset_builder.reward_preset": st.sampled_from([*PRESETS, "dense"]),
    "dataset_builder.evaluator_backend": st.sampled_from(["modal", "local"]),
    "dataset_builder.modal_gpu_type": st.sampled_from(["A100", "H100", "L40S", "T4"]),
    "dataset_builder.reward_correctness_weight": st.floats(0.3, 2.0),
    "dataset_builder.reward_length_weight": st.floats(0.0, 0.1),
    "dataset_builder.reward_thinking_weight": st.floats(0.0, 0.05),
    "dataset_builder.reward_static_checker_strict": st.lists(
        st.sampled_from(["code_bypass", "triton_impl", "pytorch_wrap", "lazy_eval"])
    ),
}
KINDS: dict[str, Any] = {
    "text": st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8).map(
        "x".__add__
    ),
    "int": st.integers(1, 50),
    "number": st.floats(0.01, 1.0),
    "bool": st.booleans(),
    "texts": st.just(["pytorch_wrap"]),
}
SUBSETS = st.fixed_dictionaries(
    {}, optional={key: VALUES[key] if key in VALUES else KINDS[KEYS[key].kind] for key in KEYS}
).filter(bool)
UNKNOWN = st.dictionaries(
    st.text("abcdefgh_", min_size=3, max_size=9).map("zz_".__add__),
    st.none() | st.text(max_size=9) | st.integers(),
    max_size=3,
)


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flat.items():
        group, _, name = key.rpartition(".")
        (found.setdefault(group, {}) if group else found)[name] = value
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(known=SUBSETS, unknown=UNKNOWN)
def test_any_known_keys_become_a_valid_recipe_and_every_key_is_placed_or_a_comment(
    tmp_path_factory: pytest.TempPathFactory, known: dict[str, Any], unknown: dict[str, Any]
) -> None:
    builder = (
        {f"{DATASET}{key}": value for key, value in unknown.items()} if nested(known).get("dataset_builder") else {}
    )
    text = pyyaml.safe_dump(nested(known | builder), allow_unicode=True)
    done, _, written = converted(tmp_path_factory.mktemp("c"), text)
    assert set(known) == set(done.placed) | (set(done.homeless) - set(builder))
    assert not set(done.placed) & set(done.homeless)
    for key in done.homeless:
        assert f"\n#   {key}: " in written
    assert {key for key, value in builder.items() if value is not None} <= set(done.homeless)
