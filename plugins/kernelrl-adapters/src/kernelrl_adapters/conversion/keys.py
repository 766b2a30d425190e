"""Configuration keys of kernel-rl and kernelbench-tinker, with their types and defaults.

Sources: G-structure/kernel_rl (af0aa94); nataliakokoromyti/kernelbench-tinker-1 (0f059f8; branch `add-multi-turn-rl`,
4c53cb4; branch `multiturn-support`, 524c1be); nataliakokoromyti/kernelbench-tinker (`reward_preset`);
cmsflash/kernelbench-tinker (`reward_partial_correctness`); pull request 5 of kernelbench-tinker (`evaluator_backend`,
`gpu_arch`, `local_timeout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

__all__ = ["DATASET", "FALLBACK", "KERNELBENCH_TINKER", "KERNEL_RL", "KEYS", "MULTI_TURN_DATASET", "PRESETS", "Key"]

KERNEL_RL = "kernel-rl"
KERNELBENCH_TINKER = "kernelbench-tinker"
DATASET = "dataset_builder."
MULTI_TURN_DATASET = "multiturn_dataset_builder."
"""Prefix of the same keys for the multi-turn mode of kernel-rl."""

Kind = Literal["text", "int", "number", "bool", "texts", "ints", "levels"]


@attrs.frozen
class Key:
    """A key of one or both systems."""

    kind: Kind
    """Type of its value; `levels`: task numbers by level. Null is accepted, and means that the key is not set."""
    default: Any = None
    """Value where it is not set."""
    only: str = ""
    """System that alone has the key; empty: both have it, or older versions of both."""


_TINKER = KERNELBENCH_TINKER

KEYS: Mapping[str, Key] = {
    "model_name": Key("text", "Qwen/Qwen2.5-Coder-7B-Instruct"),
    "lora_rank": Key("int", 32),
    "learning_rate": Key("number", 1e-4),
    "max_tokens": Key("int", 4096),
    "temperature": Key("number", 1.0),
    "top_p": Key("number", 1.0, _TINKER),
    "seed": Key("int", None, _TINKER),
    "max_tokens_extended": Key("int", 0, _TINKER),
    "max_tokens_extend_after_step": Key("int", 0, _TINKER),
    "mode": Key("text", "single_turn"),
    "max_turns": Key("int", 4),
    "gamma": Key("number", 0.4),
    "multiturn.enabled": Key("bool", False, _TINKER),
    "multiturn.n": Key("int", 4, _TINKER),
    "multiturn.gamma": Key("number", 0.4, _TINKER),
    "multiturn.aggregation": Key("text", "sum", _TINKER),
    "multiturn.early_stop_on_correct": Key("bool", False, _TINKER),
    "multiturn.speedup_threshold": Key("number", None, _TINKER),
    "num_substeps": Key("int", 1),
    "loss_fn": Key("text", "importance_sampling"),
    "max_grad_norm": Key("number", 0.0, _TINKER),
    "warmup_ratio": Key("number", 0.0, _TINKER),
    "clip_epsilon_low": Key("number", 0.0, _TINKER),
    "clip_epsilon_high": Key("number", 0.0, _TINKER),
    "constant_length_norm": Key("int", 0, _TINKER),
    "kl_penalty_coef": Key("number", 0.0),
    "kl_discount_factor": Key("number", 0.0),
    "remove_constant_reward_groups": Key("bool", True),
    "log_path": Key("text"),
    "save_every": Key("int", 10),
    "eval_every": Key("int", 10),
    "wandb_project": Key("text"),
    "wandb_name": Key("text"),
    "tensorboard_enabled": Key("bool", True),
    "tensorboard_log_histograms_every": Key("int", 5),
    "tensorboard_log_per_level": Key("bool", True),
    "base_url": Key("text"),
    "load_checkpoint_path": Key("text"),
    "resume_from_batch": Key("int"),
    "start_batch": Key("int", 0),
    "dataset_builder.level": Key("int", 1),
    "dataset_builder.levels": Key("ints", None, _TINKER),
    "dataset_builder.start_problem": Key("int"),
    "dataset_builder.end_problem": Key("int"),
    "dataset_builder.dataset_src": Key("text", "huggingface"),
    "dataset_builder.backend": Key("text", "triton"),
    "dataset_builder.gpu_arch": Key("texts", None, _TINKER),
    "dataset_builder.batch_size": Key("int", 4),
    "dataset_builder.group_size": Key("int", 4),
    "dataset_builder.num_epochs": Key("int", 1),
    "dataset_builder.shuffle": Key("bool", True),
    "dataset_builder.test_fraction": Key("number", 0.1),
    "dataset_builder.holdout_indices": Key("levels", None, _TINKER),
    "dataset_builder.max_turns": Key("int", 1),
    "dataset_builder.early_stop_on_correct": Key("bool"),
    "dataset_builder.speedup_threshold": Key("number"),
    "dataset_builder.inject_think_token": Key("bool", False, _TINKER),
    "dataset_builder.num_correct_trials": Key("int", 5),
    "dataset_builder.measure_performance": Key("bool", False),
    "dataset_builder.num_perf_trials": Key("int", 100, _TINKER),
    "dataset_builder.timing_method": Key("text", "cuda_event", _TINKER),
    "dataset_builder.precision": Key("text", "fp32", _TINKER),
    "dataset_builder.check_for_excessive_speedup": Key("bool", True, _TINKER),
    "dataset_builder.excessive_speedup_threshold": Key("number", 10.0, _TINKER),
    "dataset_builder.reward_preset": Key("text", None, _TINKER),
    "dataset_builder.reward_format_weight": Key("number", 0.0),
    "dataset_builder.reward_compile_weight": Key("number", 0.0),
    "dataset_builder.reward_correctness_weight": Key("number", 0.3),
    "dataset_builder.reward_speed_weight": Key("number", 1.0),
    "dataset_builder.reward_length_weight": Key("number", 0.0),
    "dataset_builder.reward_thinking_weight": Key("number", 0.0, KERNEL_RL),
    "dataset_builder.reward_partial_correctness": Key("bool", False, _TINKER),
    "dataset_builder.reward_speed_max_reward": Key("number", 10.0, _TINKER),
    "dataset_builder.reward_clip_min": Key("number", None, _TINKER),
    "dataset_builder.reward_clip_max": Key("number", None, _TINKER),
    "dataset_builder.reward_enable_static_checker": Key("bool", True, _TINKER),
    "dataset_builder.reward_static_checker_backend": Key("text", None, _TINKER),
    "dataset_builder.reward_static_checker_precision": Key("text", None, _TINKER),
    "dataset_builder.reward_static_checker_strict": Key("texts", None, _TINKER),
    "dataset_builder.reward_static_checker_warnings": Key("texts", None, _TINKER),
    "dataset_builder.renderer_name": Key("text"),
    "dataset_builder.prompt_option": Key("text", "one_shot"),
    "dataset_builder.prompt_precision": Key("text", None, _TINKER),
    "dataset_builder.prompt_include_hardware": Key("bool", False, _TINKER),
    "dataset_builder.prompt_gpu_name": Key("text", None, _TINKER),
    "dataset_builder.prompt_max_tokens": Key("int", None, _TINKER),
    "dataset_builder.kevin_prompt": Key("bool", False, _TINKER),
    "dataset_builder.rag_index_path": Key("text", None, KERNEL_RL),
    "dataset_builder.raicl_k": Key("int", 3, KERNEL_RL),
    "dataset_builder.use_modal": Key("bool", True),
    "dataset_builder.evaluator_backend": Key("text", None, _TINKER),
    "dataset_builder.local_timeout": Key("number", None, _TINKER),
    "dataset_builder.modal_gpu_type": Key("text", "A100"),
    "dataset_builder.modal_timeout": Key("number", 120.0),
}

FALLBACK: Mapping[str, Mapping[str, Any]] = {
    KERNEL_RL: {
        "dataset_builder.reward_format_weight": 0.1,
        "dataset_builder.reward_compile_weight": 0.2,
        "dataset_builder.reward_correctness_weight": 1.0,
        "dataset_builder.reward_speed_weight": 0.0,
        "dataset_builder.reward_length_weight": 0.05,
        "dataset_builder.reward_thinking_weight": 0.1,
    },
    KERNELBENCH_TINKER: {},
}
"""System -> defaults of its own, in place of those in `KEYS`."""

PRESETS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    "stage1": {"format": 0.3, "compile": 0.5, "correct": 0.2, "partial": True},
    "stage2": {"format": 0.1, "compile": 0.2, "correct": 0.7, "partial": True},
    "stage3": {"format": 0.05, "compile": 0.1, "correct": 0.5, "speed": 0.35},
    "sparse": {"correct": 1.0, "speed": 0.5},
}
"""Value of `reward_preset` -> weights of rewards; others are 0. `partial`: an incorrect kernel has a score by the tests
that it passes."""
