"""Every configuration key of the predecessor systems has a counterpart here, or a reason for its absence.

A counterpart is a path of the schema (`train.group_size`) or an option of a component (`tasks:kernelbench.levels`).
"""

from __future__ import annotations

import typing
from typing import Any

import attrs
import pytest

from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.blocks import blocks, core_keys
from kernelrl_core.recipe.schema import Recipe

TRAINING = {
    "model_name": "policy:torch.model",
    "lora_rank": "policy:torch.lora_rank",
    "learning_rate": "train.learning_rate",
    "max_tokens": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "seed": "seed",
    "max_tokens_extended": "sampling.extend.max_tokens",
    "max_tokens_extend_after_step": "sampling.extend.after_step",
    "num_substeps": "train.substeps",
    "loss_fn": "train.loss",
    "max_grad_norm": "train.max_grad_norm",
    "warmup_ratio": "train.warmup_ratio",
    "clip_epsilon_low": "train.clip_low",
    "clip_epsilon_high": "train.clip_high",
    "constant_length_norm": "train.length_norm",
    "remove_constant_reward_groups": "train.drop_uniform_groups",
    "save_every": "train.checkpoint_every",
    "eval_every": "eval.every",
    "wandb_project": "loggers:wandb.project",
    "wandb_name": "loggers",
    "tensorboard_enabled": "loggers",
    "tensorboard_log_histograms_every": "loggers:tensorboard.histograms_every",
    "mode": "episode.turns",
    "max_turns": "episode.turns",
    "gamma": "returns.gamma",
    "multiturn.enabled": "episode.turns",
    "multiturn.n": "episode.turns",
    "multiturn.gamma": "returns.gamma",
    "multiturn.aggregation": "returns.aggregate",
    "multiturn.early_stop_on_correct": "episode.stop",
    "multiturn.speedup_threshold": "episode.stop.speedup",
    "adam.beta1": "train.beta1",
    "adam.beta2": "train.beta2",
    "adam.eps": "train.eps",
    "stop": "sampling.stop",
}

DATASET_BUILDER = {
    "level": "tasks:kernelbench.levels",
    "levels": "tasks:kernelbench.levels",
    "start_problem": "tasks:kernelbench.start",
    "end_problem": "tasks:kernelbench.end",
    "dataset_src": "tasks:kernelbench.source",
    "backend": "backend.use",
    "batch_size": "train.tasks_per_step",
    "group_size": "train.group_size",
    "num_epochs": "train.epochs",
    "shuffle": "train.shuffle",
    "test_fraction": "tasks:kernelbench.holdout.fraction",
    "holdout_indices": "tasks:kernelbench.holdout.level1",
    "max_turns": "episode.turns",
    "early_stop_on_correct": "episode.stop",
    "speedup_threshold": "episode.stop.speedup",
    "inject_think_token": "prompt.think_prefix",
    "num_correct_trials": "evaluation.trials",
    "measure_performance": "evaluation.timing",
    "num_perf_trials": "evaluation.timing_trials",
    "timing_method": "evaluation.timing_method",
    "precision": "evaluation.precision",
    "check_for_excessive_speedup": "evaluation.excessive_speedup",
    "excessive_speedup_threshold": "evaluation.excessive_speedup",
    "reward_format_weight": "rewards.weight",
    "reward_compile_weight": "rewards.weight",
    "reward_correctness_weight": "rewards.weight",
    "reward_speed_weight": "rewards.weight",
    "reward_length_weight": "rewards.weight",
    "reward_thinking_weight": "rewards.weight",
    "reward_speed_max_reward": "rewards:speedup.cap",
    "reward_speed_baseline": "rewards:speedup.baseline",
    "reward_speed_scale": "rewards:speedup.scale",
    "reward_format_penalty": "rewards:format.penalty",
    "reward_partial_correctness": "rewards:correctness.mode",
    "reward_enable_static_checker": "checkers",
    "reward_static_checker_backend": "backend.use",
    "reward_static_checker_precision": "evaluation.precision",
    "reward_static_checker_strict": "forbid",
    "reward_static_checker_warnings": "checkers:source_rules.severity",
    "prompt_option": "prompt.shots",
    "prompt_precision": "prompt.state_precision",
    "prompt_include_hardware": "prompt.hardware",
    "prompt_gpu_name": "prompt.hardware.gpu",
    "prompt_max_tokens": "prompt.max_tokens",
    "kevin_prompt": "prompt.template",
    "use_modal": "evaluator.use",
    "evaluator_backend": "evaluator.use",
    "local_timeout": "evaluation.timeout_s",
    "modal_timeout": "evaluation.timeout_s",
    "modal_gpu_type": "evaluator:modal.gpu",
    "prompt_option: raicl": "retriever.use",
    "rag_index_path": "retriever:faiss.index",
    "raicl_k": "retriever.k",
    "cheating_penalty": "verdicts.hack_reward",
}

MODAL_CLIENT = {
    "enabled": "evaluator.use",
    "gpu_type": "evaluator:modal.gpu",
    "timeout": "evaluation.timeout_s",
    "deployment_mode": "evaluator:modal.mode",
    "max_containers": "evaluator:modal.max_containers",
    "min_containers": "evaluator:modal.min_containers",
}

REFUSED = {
    "kl_penalty_coef": "was declared and never applied; the KL penalty of this project is train.kl",
    "kl_discount_factor": "is used only with kl_penalty_coef",
    "log_path": "a run directory is runs/NAME, with --name",
    "tensorboard_log_per_level": "the logger tensorboard always writes the metrics of each level",
    "tensorboard.flush_secs": "the logger tensorboard writes every step when it is finished",
    "tensorboard.log_histograms_every": "tensorboard_log_histograms_every under another name",
    "tensorboard.log_detailed_every": "was never used",
    "base_url": "an option of the policy plugin tinker",
    "load_checkpoint_path": "'kernelrl resume' finds the last checkpoint of a run",
    "resume_from_batch": "'kernelrl resume' reads the step from the journals",
    "start_batch": "'kernelrl resume' reads the step from the journals",
    "renderer_name": "the policy renders with the chat template of its own model; a guess from the name can be wrong",
    "reward_clip_min": "components have their own bounds; a clipped sum could score wrong and correct kernels equally",
    "reward_clip_max": "speedup has its own cap; a clipped sum could score wrong and correct kernels equally",
    "reward_preset": "stages are recipes: stage1, stage2, stage3",
    "modal.max_batch_size": "a candidate is a call of its own; the limit is max_containers of the evaluator modal",
    "modal.batch_single": "there are no batches: a candidate is a call of its own",
    "modal.batch_window_s": "there are no batches: a candidate is sent at once",
    "modal.retries": "the core retries, and only after infrastructure errors",
    "modal.return_exceptions": "a failure of a machine is an infra_error, which is counted and never scored",
    "modal.modal_token_env": "was never used; keys come from the environment only",
    "gpu_arch": "the option arch of the backend plugin hip",
}

PLACES = {**TRAINING, **{f"dataset_builder.{key}": place for key, place in DATASET_BUILDER.items()}}
PLACES |= {f"modal.{key}": place for key, place in MODAL_CLIENT.items()}


def keys_of(hint: Any) -> dict[str, Any]:
    """Fields of the classes in a type hint, including members of unions."""
    found: dict[str, Any] = {}
    for member in (hint, *typing.get_args(hint)):
        if isinstance(member, type) and attrs.has(member):
            hints = typing.get_type_hints(member)
            found |= {field.name: hints[field.name] for field in attrs.fields(member)}
    return found


def exists(place: str) -> bool:
    """Whether the schema, or an installed component, has the key."""
    head, _, rest = place.partition(".")
    key, _, component = head.partition(":")
    block = blocks().get(key)
    known: dict[str, Any]
    if component:
        assert block is not None
        known = keys_of(registry().config_class(block.kind, component))
    elif block is not None:
        if not rest:
            return True
        known = {"use": str, **core_keys(block.cls)}
    else:
        known = keys_of(Recipe)
        rest = place
    for part in rest.split("."):
        if part not in known:
            return False
        known = keys_of(known[part])
    return True


@pytest.mark.parametrize("key", sorted(PLACES))
def test_a_key_has_a_counterpart(key: str) -> None:
    assert exists(PLACES[key]), PLACES[key]


def test_a_key_without_a_counterpart_has_a_reason() -> None:
    assert not REFUSED.keys() & PLACES.keys()
    assert all(reason for reason in REFUSED.values())


@pytest.mark.parametrize(
    "place", ["train.grop_size", "tasks:kernelbench.level", "sampling.extend.steps", "rewards.wieght", "nothing"]
)
def test_a_counterpart_that_does_not_exist_is_found(place: str) -> None:
    assert not exists(place)
