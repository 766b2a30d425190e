"""From a configuration of kernel-rl or kernelbench-tinker to the plain data of a recipe.

Names of components are data here, as in a bundled recipe: no plugin is imported, and none has to be installed.
"""

from __future__ import annotations

from typing import Any

import attrs

from kernelrl_adapters.conversion.keys import DATASET, KERNEL_RL, KEYS, PRESETS
from kernelrl_adapters.conversion.reading import Configuration
from kernelrl_core.api.errors import nearest
from kernelrl_core.api.recipes import Origin, Problem, RecipeError

__all__ = ["Conversion", "convert"]

_MODES = ("single_turn", "multi_turn")
_SHOTS = {"zero_shot": "zero", "one_shot": "one", "few_shot": "few", "raicl": "one"}
_FORBID = {
    "no_kernel": ("cuda_impl", "triton_impl", "tk_impl", "cute_impl", "tilelang_impl"),
    "library_operators": ("pytorch_wrap", "torch_computation_ops"),
    "fallback": ("code_bypass",),
    "inherited_reference": ("code_bypass",),
}
"""Rule -> checks of KernelBench that it replaces."""
_COMPONENTS = {
    "correct": "correctness",
    "speed": "speedup",
    "format": "format",
    "compile": "compile",
    "brief": "length",
    "thinking": "thinking",
}
"""Name of a reward in the recipe -> its component."""
_WEIGHTS = {"correct": "correctness", "brief": "length"}
"""Name of a reward in the recipe -> its word in the key of its weight, where they differ."""
_RESUME = "kernelrl resume RUN continues at the last checkpoint, kernelrl run RECIPE --from RUN@STEP starts from one"
_SAME = "kernelrl uses the value of the recipe: {}"


@attrs.define
class Conversion:
    """A recipe as plain data, and the fate of each key."""

    configuration: Configuration
    recipe: dict[str, Any] = attrs.field(factory=dict)
    origins: dict[tuple[str, ...], Origin] = attrs.field(factory=dict)
    """Path in the recipe -> place of the value in the configuration."""
    placed: dict[str, list[str]] = attrs.field(factory=dict)
    """Key that is set -> paths of the recipe that it decides."""
    homeless: dict[str, str] = attrs.field(factory=dict)
    """Key that is set and has no place -> the reason."""
    notes: dict[str, str] = attrs.field(factory=dict)
    """Key with a place -> how its meaning differs."""

    def put(self, path: str, value: Any, *keys: str) -> None:
        """Set a value of the recipe. `keys` are those of the configuration that decide it."""
        *above, last = path.split(".")
        block = self.recipe
        for name in above:
            block = block.setdefault(name, {})
        block[last] = value
        self.decide(path, *keys)

    def decide(self, path: str, *keys: str) -> None:
        """Record that keys decide a value of the recipe, if they are set."""
        for key in keys:
            if key in self.configuration.values:
                self.placed.setdefault(key, []).append(path)
                self.origins.setdefault(tuple(path.split(".")), self.configuration.origins[key])

    def copy(self, key: str, path: str) -> None:
        """Set a value of the recipe to that of a key, or to the default of the system; null is not written."""
        value = self.configuration[key]
        if value is not None:
            self.put(path, value, key)

    def drop(self, key: str, reason: str) -> None:
        """Record that a key has no place, if it is set."""
        if key in self.configuration.values:
            self.homeless[key] = reason

    def note(self, key: str, text: str) -> None:
        """Record how the meaning of a key differs, if it is set."""
        if key in self.configuration.values:
            self.notes[key] = text


def convert(given: Configuration) -> Conversion:
    """The recipe for a configuration. `planning.load.checked_recipe` checks its values.

    Raises:
        RecipeError: the mode is unknown.
    """
    if given["mode"] not in _MODES:
        message = f"expected {' or '.join(_MODES)}, got {given['mode']!r:.60}"
        raise RecipeError([Problem(given.origins["mode"], "mode", message)])
    done = Conversion(given)
    for part in (
        _tasks,
        _backend,
        _policy,
        _evaluator,
        _prompt,
        _sampling,
        _episode,
        _rewards,
        _checkers,
        _train,
        _run,
    ):
        part(done, given)
    for key, value in given.unknown.items():
        if value is not None:
            close = nearest(key, KEYS)
            done.homeless[key] = f"{given.system} has no such key" + (f"; is it {close}?" if close else "")
    return done


def _key(name: str) -> str:
    return f"{DATASET}{name}"


def _tasks(done: Conversion, given: Configuration) -> None:
    done.copy("seed", "seed")
    done.note("seed", "seed of all random choices; each reply has a seed of its own, derived from it")
    done.put("tasks.use", "kernelbench")
    if given[_key("levels")]:
        done.put("tasks.levels", given[_key("levels")], _key("levels"))
        done.drop(_key("level"), "dataset_builder.levels replaces it")
    else:
        done.put("tasks.levels", [given[_key("level")]], _key("level"))
        done.drop(_key("levels"), "empty")
    done.copy(_key("start_problem"), "tasks.start")
    done.copy(_key("end_problem"), "tasks.end")
    if given[_key("dataset_src")] == "local":
        done.put("tasks.source", "local", _key("dataset_src"))
    else:
        done.drop(
            _key("dataset_src"),
            "tasks are read from a clone, or with tasks.source=hub tasks.revision=COMMIT from the hub",
        )
    if given[_key("holdout_indices")]:
        numbers = {f"level{level}": listed for level, listed in sorted(given[_key("holdout_indices")].items())}
        done.put("tasks.holdout", numbers, _key("holdout_indices"))
        done.drop(_key("test_fraction"), "dataset_builder.holdout_indices replaces it")
    elif given[_key("test_fraction")]:
        done.put("tasks.holdout", {"fraction": given[_key("test_fraction")]}, _key("test_fraction"))
        done.note(_key("test_fraction"), "a random share of each level, not the last tasks of all levels together")
    else:
        done.put("tasks.holdout", "none", _key("test_fraction"))
    if not given[_key("holdout_indices")]:
        done.drop(_key("holdout_indices"), "empty")


def _backend(done: Conversion, given: Configuration) -> None:
    done.copy(_key("backend"), "backend.use")
    done.put("backend.mode", "gpu")
    if given[_key("backend")] == "hip":
        done.copy(_key("gpu_arch"), "backend.arch")
    else:
        done.drop(_key("gpu_arch"), "the architecture is that of the GPU; option arch of a backend changes it")


def _policy(done: Conversion, given: Configuration) -> None:
    done.put("policy.use", "tinker")
    done.copy("model_name", "policy.model")
    done.copy("lora_rank", "policy.lora_rank")
    done.copy(_key("renderer_name"), "policy.renderer")
    done.copy("base_url", "policy.base_url")
    start = given["load_checkpoint_path"]
    if start is not None and start.startswith("tinker://"):
        done.put("policy.start_from", start, "load_checkpoint_path")
        done.note("load_checkpoint_path", "weights only; training starts at step 0")
    else:
        done.drop("load_checkpoint_path", _RESUME)
    done.drop("resume_from_batch", _RESUME)
    done.drop("start_batch", _RESUME)


def _evaluator(done: Conversion, given: Configuration) -> None:
    name = given[_key("evaluator_backend")] or ("modal" if given[_key("use_modal")] else "local")
    done.put("evaluator.use", name, _key("evaluator_backend"), _key("use_modal"))
    if name != "local":
        done.copy(_key("modal_gpu_type"), "evaluator.gpu")
        done.copy(_key("modal_timeout"), "evaluation.timeout_s")
        done.drop(_key("local_timeout"), "the evaluator is modal")
    else:
        done.drop(_key("modal_gpu_type"), "the evaluator is local")
        limit = "local_timeout" if given[_key("local_timeout")] is not None else "modal_timeout"
        done.copy(_key(limit), "evaluation.timeout_s")
        if limit == "local_timeout":
            done.drop(_key("modal_timeout"), "the evaluator is local")
    done.copy(_key("num_correct_trials"), "evaluation.trials")
    done.copy(_key("precision"), "evaluation.precision")
    done.copy(_key("measure_performance"), "evaluation.timing")
    timed = given[_key("measure_performance")]
    checked, threshold = _key("check_for_excessive_speedup"), _key("excessive_speedup_threshold")
    if timed:
        done.copy(_key("num_perf_trials"), "evaluation.timing_trials")
        done.put("evaluation.excessive_speedup", given[threshold] if given[checked] else None, threshold, checked)
    else:
        for key in (_key("num_perf_trials"), checked, threshold):
            done.drop(key, "no run time is measured (evaluation.timing)")
    done.drop(
        _key("timing_method"),
        "recorded calls are replayed and timed; evaluation.profile=kernelbench has KernelBench's methods",
    )


def _prompt(done: Conversion, given: Configuration) -> None:
    kevin = given[_key("kevin_prompt")]
    done.put("prompt.template", "kevin" if kevin else "kernelrl", _key("kevin_prompt"))
    option = given[_key("prompt_option")]
    done.put("prompt.shots", _SHOTS.get(option, option), _key("prompt_option"))
    done.copy(_key("prompt_max_tokens"), "prompt.max_tokens")
    done.put("prompt.think_prefix", given[_key("inject_think_token")], _key("inject_think_token"))
    gpu = given[_key("prompt_gpu_name")] or given[_key("modal_gpu_type")]
    if given[_key("prompt_include_hardware")]:
        done.put("prompt.hardware", {"gpu": gpu}, _key("prompt_include_hardware"), _key("prompt_gpu_name"))
    else:
        done.put("prompt.hardware", None, _key("prompt_include_hardware"))
        done.drop(_key("prompt_gpu_name"), "the prompt describes no hardware (prompt.hardware)")
    done.drop(_key("prompt_precision"), _SAME.format("evaluation.precision, which the prompt states"))
    if option == "raicl":
        done.put("retriever.use", "faiss", _key("prompt_option"))
        done.put("retriever.index", given[_key("rag_index_path")] or "./kernel_rag_index", _key("rag_index_path"))
        done.copy(_key("raicl_k"), "retriever.k")
        done.note(_key("rag_index_path"), "build it again with kernelrl index build: the format differs")
    else:
        for key in (_key("rag_index_path"), _key("raicl_k")):
            done.drop(key, "nothing is retrieved (prompt_option is not raicl)")


def _sampling(done: Conversion, given: Configuration) -> None:
    done.copy("max_tokens", "sampling.max_tokens")
    done.copy("temperature", "sampling.temperature")
    done.copy("top_p", "sampling.top_p")
    done.note("top_p", "there it had no effect with one turn")
    if given["max_tokens_extended"] > 0:
        done.put("sampling.extend.after_step", given["max_tokens_extend_after_step"], "max_tokens_extend_after_step")
        done.put("sampling.extend.max_tokens", given["max_tokens_extended"], "max_tokens_extended")
    else:
        done.put("sampling.extend", None, "max_tokens_extended")
        done.drop("max_tokens_extend_after_step", "the limit is never raised (max_tokens_extended is 0)")


def _episode(done: Conversion, given: Configuration) -> None:
    """Three places switch on several turns: `multiturn`, `mode`, and `max_turns` of the dataset builder."""
    if given["multiturn.enabled"]:
        names = {"turns": "multiturn.n", "gamma": "multiturn.gamma", "stop": "multiturn.early_stop_on_correct"}
        names |= {"threshold": "multiturn.speedup_threshold", "switch": "multiturn.enabled"}
    elif given["mode"] == "multi_turn":
        names = {"turns": "max_turns", "gamma": "gamma", "stop": _key("early_stop_on_correct")}
        names |= {"threshold": _key("speedup_threshold"), "switch": "mode"}
    else:
        names = {"turns": _key("max_turns"), "gamma": "multiturn.gamma", "stop": _key("early_stop_on_correct")}
        names |= {"threshold": _key("speedup_threshold"), "switch": _key("max_turns")}
    turns = given[names["turns"]]
    done.put("episode.turns", turns, names["turns"], names["switch"], "multiturn.enabled", "mode")
    if turns > 1:
        done.put("returns.gamma", given[names["gamma"]], names["gamma"])
        done.put("returns.aggregate", given["multiturn.aggregation"], "multiturn.aggregation")
        _history(done, given)
        _stop(done, given, names)
    unused = [key for key in KEYS if key.startswith("multiturn.")] + ["max_turns", "gamma"]
    unused += map(_key, ("max_turns", "early_stop_on_correct", "speedup_threshold"))
    for key in unused:
        if key not in done.placed:
            done.drop(key, "another key decides that" if turns > 1 else "an episode has one turn (episode.turns)")


def _history(done: Conversion, given: Configuration) -> None:
    if given.system == KERNEL_RL:
        done.put("history", {"keep": {"last": 1}, "thinking": "stripped", "form": "prompt"})
        if given[_key("prompt_option")] == "raicl":
            done.put("retriever.turns", "all")
    elif given[_key("kevin_prompt")]:
        done.put("history", {"keep": "all", "thinking": "summarised", "form": "prompt"})
    else:
        done.put("history", {"keep": "all", "thinking": "stripped", "form": "chat"})


def _stop(done: Conversion, given: Configuration, names: dict[str, str]) -> None:
    # In the multi-turn mode of kernel-rl an episode ended with the first correct kernel unless the key is false.
    stops = given[names["stop"]] if given[names["stop"]] is not None else names["switch"] == "mode"
    threshold = given[names["threshold"]]
    if stops and threshold is not None and given[_key("measure_performance")]:
        done.put("episode.stop", {"speedup": threshold}, names["stop"], names["threshold"])
    else:
        done.put("episode.stop", "correct" if stops else "never", names["stop"])
        done.drop(
            names["threshold"], "no episode ends early" if not stops else "no run time is measured (evaluation.timing)"
        )


def _rewards(done: Conversion, given: Configuration) -> None:
    name = given[_key("reward_preset")]
    preset = PRESETS.get(name or "default", {})
    if name is not None and not preset:
        done.drop(_key("reward_preset"), f"sets no weights; those that do: {', '.join(filter(PRESETS.get, PRESETS))}")
    timed, partial = given[_key("measure_performance")], _key("reward_partial_correctness")
    for component, use in _COMPONENTS.items():
        key = _key(f"reward_{_WEIGHTS.get(component, component)}_weight")
        weight, decides = given[key], key
        if preset:
            weight, decides = preset.get(component, 0.0), _key("reward_preset")
            done.drop(key, "dataset_builder.reward_preset replaces it")
        if component == "speed" and not timed:
            done.drop(key, "no run time is measured (evaluation.timing), so it added nothing")
            continue
        done.decide(f"rewards.{component}.weight", decides)
        if weight:
            done.put(f"rewards.{component}.use", use)
            done.put(f"rewards.{component}.weight", weight)
        if weight and component in ("format", "compile", "brief"):
            done.note(decides, "counts for incorrect kernels, too; there only a correct one had a score")
    rewards = done.recipe.get("rewards", {})
    if "correct" in rewards and not preset:
        done.put("rewards.correct.mode", "partial" if given[partial] else "all", partial)
    elif "correct" in rewards:
        done.put("rewards.correct.mode", "partial" if preset.get("partial") else "all")
    if partial not in done.placed:
        done.drop(partial, "dataset_builder.reward_preset decides that" if preset else "correct kernels have weight 0")
    if "speed" in rewards:
        done.put("rewards.speed.baseline", 1.0 if given.system == KERNEL_RL else 0.0)
        done.put("rewards.speed.cap", given[_key("reward_speed_max_reward")], _key("reward_speed_max_reward"))
    else:
        done.drop(_key("reward_speed_max_reward"), "there is no reward for speed")
    for bound in ("reward_clip_min", "reward_clip_max"):
        done.drop(_key(bound), "scores are not clipped; components have bounds, such as rewards.speed.cap")


def _checkers(done: Conversion, given: Configuration) -> None:
    enabled = _key("reward_enable_static_checker")
    done.decide("checkers.source", enabled)
    if given[enabled]:
        done.put("checkers.source.use", "source_rules")
    done.put("checkers.measured.use", "evaluation_rules")
    strict = given[_key("reward_static_checker_strict")]
    if strict is not None and given[enabled]:
        rules = [rule for rule, checks in _FORBID.items() if set(checks) & set(strict)]
        done.put("forbid", rules, _key("reward_static_checker_strict"))
        done.note(
            _key("reward_static_checker_strict"), "timing and threads need no rule: the clock is in another process"
        )
    else:
        done.drop(_key("reward_static_checker_strict"), "sources are not checked")
    done.drop(_key("reward_static_checker_warnings"), "every rule that is not in forbid is reported as a finding")
    done.drop(_key("reward_static_checker_backend"), _SAME.format("backend.use"))
    done.drop(_key("reward_static_checker_precision"), _SAME.format("evaluation.precision"))
    done.put("feedback.use", "structured")


def _train(done: Conversion, given: Configuration) -> None:
    done.put("advantage.use", "dr_grpo")
    done.copy(_key("batch_size"), "train.tasks_per_step")
    done.copy(_key("group_size"), "train.group_size")
    done.copy(_key("num_epochs"), "train.epochs")
    done.copy(_key("shuffle"), "train.shuffle")
    done.copy("learning_rate", "train.learning_rate")
    done.copy("warmup_ratio", "train.warmup_ratio")
    done.copy("num_substeps", "train.substeps")
    done.copy("loss_fn", "train.loss")
    clips = {"clip_epsilon_low": "train.clip_low", "clip_epsilon_high": "train.clip_high"}
    for key, path in clips.items():
        if given["loss_fn"] == "importance_sampling":
            done.drop(key, "importance_sampling clips nothing (train.loss)")
        elif given["clip_epsilon_low"] > 0:
            done.copy(key, path)
        else:
            done.drop(key, "clip_epsilon_low of 0 left both to the server; train.clip_low and train.clip_high are 0.2")
    done.put("train.max_grad_norm", given["max_grad_norm"] or None, "max_grad_norm")
    done.note("max_grad_norm", "clips the gradient after its division by train.length_norm")
    done.put("train.length_norm", given["constant_length_norm"] or "none", "constant_length_norm")
    done.copy("remove_constant_reward_groups", "train.drop_uniform_groups")
    done.note("remove_constant_reward_groups", "excludes uniform groups, which it did not do there")
    for key in ("kl_penalty_coef", "kl_discount_factor"):
        done.drop(key, "had no effect; train.kl adds a KL penalty")
    done.copy("save_every", "train.checkpoint_every")


def _run(done: Conversion, given: Configuration) -> None:
    done.drop("eval_every", "had no effect; eval.every evaluates the held-out tasks during training")
    if given["tensorboard_enabled"]:
        done.put("loggers.tensorboard", {"use": "tensorboard"}, "tensorboard_enabled")
        done.copy("tensorboard_log_histograms_every", "loggers.tensorboard.histograms_every")
    else:
        done.put("loggers", {}, "tensorboard_enabled")
        done.drop("tensorboard_log_histograms_every", "there is no logger tensorboard")
    done.drop("tensorboard_log_per_level", "metrics of each level are always written")
    if given["wandb_project"]:
        done.put("loggers.wandb", {"use": "wandb", "project": given["wandb_project"]}, "wandb_project")
    else:
        done.drop("wandb_project", "empty")
    done.drop("wandb_name", "a run has the name of its directory: kernelrl run RECIPE --name NAME")
    done.drop("log_path", "a run is in ./runs: kernelrl run RECIPE --name NAME")
