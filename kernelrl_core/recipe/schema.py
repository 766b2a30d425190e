"""Every key of a recipe, with its type, default and meaning.

The sentence below a field is its documentation everywhere: in `kernelrl schema`, in editors, and in the reference.
Blocks that choose a component have the type `Use`; its other keys are the options of that component.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NewType

import attrs

from kernelrl_core.values import EvaluationSettings

__all__ = [
    "Advance",
    "BestHistory",
    "CostSettings",
    "CoverageRejection",
    "CurriculumSettings",
    "DemonstrationSettings",
    "Difficulty",
    "EpisodeSettings",
    "EvalSettings",
    "Extension",
    "Fraction",
    "Hardware",
    "HistorySettings",
    "LastHistory",
    "MismatchSettings",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "PriceSettings",
    "PromptSettings",
    "Recipe",
    "RetrieverUse",
    "ReturnSettings",
    "RewardUse",
    "SamplingOptions",
    "SpeedupStop",
    "Stage",
    "TrainSettings",
    "Use",
    "VerdictSettings",
]

PositiveInt = NewType("PositiveInt", int)
NonNegativeInt = NewType("NonNegativeInt", int)
PositiveFloat = NewType("PositiveFloat", float)
NonNegativeFloat = NewType("NonNegativeFloat", float)
Fraction = NewType("Fraction", float)
"""From 0 to 1, both included."""


@attrs.frozen
class Use:
    """A component by name. In a recipe its options stand flat, beside `use`."""

    use: str
    """Component name, or `plugin:name`."""
    options: Any = None
    """Instance of the component's config class, or None when it has none."""
    raw: Mapping[str, Any] = attrs.field(factory=dict)
    """The options as they were written, for the saved recipe."""


@attrs.frozen
class RewardUse(Use):
    """A reward component and its weight."""

    weight: float = 1.0
    """Factor of the component's score."""


@attrs.frozen
class RetrieverUse(Use):
    """A retriever and how many examples it contributes."""

    k: PositiveInt = PositiveInt(3)
    """Examples per prompt."""
    turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows them."""


@attrs.frozen
class Hardware:
    """GPU described in the prompt, with its specifications."""

    gpu: str
    """Name such as `H100`, or `auto` for the GPU of this machine."""


@attrs.frozen
class PromptSettings:
    """How the core words the prompt."""

    template: str = "kernelrl"
    """`kernelrl`, `kernelbench`, `kevin`, `brief`, or the path of a jinja2 template."""
    shots: Literal["zero", "one", "few"] = "one"
    """Examples of the backend shown: none, one, or all it has."""
    example_turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows the examples."""
    state_precision: bool = True
    """Name the precision and the tolerance."""
    hardware: Hardware | None = None
    """Describe a GPU."""
    max_tokens: PositiveInt | None = None
    """Longest prompt in rendered tokens, before the context's own limit. The oldest history goes first."""
    summary: bool = False
    """Ask for a short summary of the change after the code, and show it in later turns."""
    think_prefix: bool = False
    """Begin the reply with an opening think tag, for models that need the push."""


@attrs.frozen
class Extension:
    """Longer replies from a step on."""

    after_step: NonNegativeInt
    """First step (from 0) with the new limit."""
    max_tokens: PositiveInt
    """The new limit."""


@attrs.frozen
class SamplingOptions:
    """How replies are drawn in training."""

    max_tokens: PositiveInt = PositiveInt(4096)
    """Longest reply in tokens."""
    temperature: NonNegativeFloat = NonNegativeFloat(1.0)
    top_p: Fraction = Fraction(1.0)
    top_k: int = -1
    """-1 keeps every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a reply."""
    extend: Extension | None = None
    """Raise `max_tokens` at a step."""
    concurrency: PositiveInt | None = None
    """Most replies that are drawn at once; of those that wait, attempts with much before them go first. Null: all."""


@attrs.frozen
class SpeedupStop:
    """End an episode at a correct kernel that is fast enough."""

    speedup: PositiveFloat


@attrs.frozen
class EpisodeSettings:
    """The turns of an attempt."""

    turns: PositiveInt = PositiveInt(1)
    """Most turns of an attempt; 1 is single-turn training."""
    stop: Literal["never", "correct"] | SpeedupStop = "never"
    """When an attempt ends before its last turn."""


@attrs.frozen
class LastHistory:
    """Keep the last attempts."""

    last: PositiveInt


@attrs.frozen
class BestHistory:
    """Keep the attempts with the highest reward, in the order of their turns."""

    best: PositiveInt


@attrs.frozen
class HistorySettings:
    """What a later turn sees of the earlier ones."""

    thinking: Literal["stripped", "kept", "summarised"] = "stripped"
    """What becomes of the thinking of earlier replies."""
    keep: Literal["all"] | LastHistory | BestHistory = "all"
    """Which earlier turns are shown; a token budget drops the oldest of them first."""
    form: Literal["chat", "prompt"] = "chat"
    """`chat`: each attempt as the model's message and its feedback as the user's; `prompt`: all at the end of the one
    message of the user."""


@attrs.frozen
class ReturnSettings:
    """How later turns count for earlier ones."""

    gamma: Fraction = Fraction(1.0)
    """Discount per turn."""
    aggregate: Literal["sum", "max"] = "sum"
    """`sum`: R_t = s_t + gamma R_(t+1); `max`: R_t = max over i >= t of gamma^(i-t) s_i."""


@attrs.frozen
class VerdictSettings:
    """What a checker's verdict does to the reward."""

    hack_reward: float = 0.0
    """Reward of a turn that ends as `hacked`, in place of the components."""
    suspect: Literal["cap", "zero", "ignore"] = "cap"
    """A `suspect` turn: speedup counted as at most 1, reward 0, or no change."""


def _share() -> float:
    field: float = attrs.field(default=0.0, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    return field


@attrs.frozen
class VerifySettings:
    """A second judgement of correct kernels: other inputs, other sizes, more trials, profile `strict`. It never pays;
    what does not stand up to it, or is suspect there, is the `hack_gap` of the metrics."""

    train: float = _share()
    """Share of the correct kernels of training that are judged twice, from 0 to 1."""
    eval: float = _share()
    """The same of evaluations."""
    trials: PositiveInt = PositiveInt(10)
    """Correctness trials of the second judgement."""
    sizes: bool = True
    """Have it call the kernel on inputs of other sizes, too, where the task has sizes that may change."""


@attrs.frozen
class MismatchSettings:
    """Leave out samples that the trainer computes otherwise than the sampler did."""

    sequence_low: PositiveFloat = PositiveFloat(0.999)
    """Least geometric mean of a reply's ratios p_train / p_sample …"""
    sequence_high: PositiveFloat = PositiveFloat(1.001)
    """… and its greatest."""
    token_min: PositiveFloat = PositiveFloat(1e-4)
    """A single token below this ratio rejects the reply."""


@attrs.frozen
class CoverageRejection:
    """Leave out correct samples whose time is mostly spent in kernels that are not their own."""

    threshold: Fraction = Fraction(0.3)
    """Share of device time in own kernels up to which a sample is never trained on …"""
    ramp: NonNegativeFloat = NonNegativeFloat(0.1)
    """… and by how much more it always is: kept with probability clip((share - threshold) / ramp, 0, 1)."""


@attrs.frozen
class DemonstrationSettings:
    """What a policy that warm-starts learns from before reinforcement learning begins."""

    file: Path | None = None
    """Conversations as `kernelrl distill` writes them: JSONL with `messages`, the last of which is learnt; null: none.
    """
    bundled: bool = True
    """Learn from the answers that the task source bundles as well."""


@attrs.frozen
class TrainSettings:
    """Batches, credit and the optimizer."""

    split: str = "train"
    """Split that is trained on."""
    quarantine: bool = True
    """Leave out tasks whose audit found that a shortcut would be paid for, or that cannot be judged."""
    tasks_per_step: PositiveInt = PositiveInt(8)
    """Tasks in a batch."""
    group_size: PositiveInt = PositiveInt(8)
    """Attempts at each task."""
    steps: NonNegativeInt | None = None
    """Number of steps; leave it out to count in epochs."""
    epochs: PositiveFloat | None = None
    """Passes over the training split; the last batch may be short. Without `steps` and `epochs`: one pass."""
    shuffle: bool = True
    """Draw tasks in an order derived from seed and epoch; false keeps the source's order."""
    learning_rate: NonNegativeFloat = NonNegativeFloat(1e-5)
    warmup_ratio: Fraction = Fraction(0.0)
    """Share of the steps in which the learning rate rises linearly to its full value."""
    substeps: PositiveInt = PositiveInt(1)
    """Optimizer steps per batch."""
    loss: str = "importance_sampling"
    """`importance_sampling`, `ppo`, `cispo`, or another loss of the policy."""
    clip_low: Fraction = Fraction(0.2)
    """PPO and CISPO: lower clip of the ratio, as distance from 1."""
    clip_high: NonNegativeFloat = NonNegativeFloat(0.2)
    """PPO and CISPO: upper clip of the ratio, as distance from 1."""
    kl: NonNegativeFloat = NonNegativeFloat(0.0)
    """Weight of the penalty for leaving the model as it started; 0: none."""
    mismatch: MismatchSettings | None = None
    """Leave out samples about which sampler and trainer disagree; null: none."""
    ratio: Literal["token", "sequence"] = "token"
    """What losses weight and clip by: each token's ratio, or the geometric mean of the ratios of its reply."""
    coverage_rejection: CoverageRejection | None = None
    """Leave out correct but lazy kernels, by their profile; null: none."""
    length_norm: Literal["tokens", "max_tokens", "none"] | PositiveInt = "tokens"
    """Divisor, times `substeps`, of the token loss that an optimizer step sums: sampled tokens of the batch; samples
    times the step's `max_tokens`; samples; or samples times a constant."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the gradient's global norm."""
    beta1: Fraction = Fraction(0.9)
    beta2: Fraction = Fraction(0.95)
    eps: PositiveFloat = PositiveFloat(1e-8)
    weight_decay: NonNegativeFloat = NonNegativeFloat(0.0)
    drop_uniform_groups: bool = True
    """Leave out groups whose advantages are all 0; a step with nothing left trains nothing and is counted as
    skipped."""
    min_group_size: PositiveInt = PositiveInt(2)
    """Fewest attempts of a task that must be free of infrastructure errors; smaller groups are masked."""
    stream: bool = True
    """Compute gradients of a group as soon as it and all before it are complete, where policy and settings allow it
    (docs/pipelining.md). Changes nothing but time."""
    order: Literal["canonical", "completion"] = "canonical"
    """Order in which groups are learnt from: that of the batch, or that in which they were completed."""
    staleness: NonNegativeInt = NonNegativeInt(0)
    """Steps that may be sampled ahead while earlier ones are trained; their samples lack so many updates at most."""
    exact_resume: bool = True
    """Refuse settings under which a resumed run would not repeat the undisturbed one."""
    checkpoint_every: PositiveInt = PositiveInt(1)
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: PositiveInt | None = PositiveInt(3)
    """Newest checkpoints whose files are kept; null keeps all. The last of a finished run always stays."""


@attrs.frozen
class Advance:
    """When a stage has done its work."""

    above: float
    """Least mean of the metric …"""
    over: PositiveInt = PositiveInt(5)
    """… over the last so many steps, all of the stage."""
    metric: Literal[
        "kernel/format_rate",
        "kernel/compile_rate",
        "kernel/correct_rate",
        "multiturn/success_rate",
        "multiturn/best_speedup_mean",
        "reward/mean",
    ] = "kernel/correct_rate"
    """Metric of the steps that is looked at."""


@attrs.frozen
class Stage:
    """A part of a run with tasks, tolerances or rewards of its own."""

    levels: tuple[int, ...] | None = None
    """Levels whose tasks are worked on; null: every task."""
    until: Advance | None = None
    """The stage ends when this is reached."""
    max_steps: PositiveInt | None = None
    """The stage ends after so many steps at the latest."""
    atol: PositiveFloat | None = None
    """Absolute tolerance in training; null: that of `evaluation`."""
    rtol: PositiveFloat | None = None
    """Relative tolerance in training; null: that of `evaluation`."""
    trials: PositiveInt | None = None
    """Correctness trials in training; null: those of `evaluation`."""
    weights: dict[str, float] = attrs.field(factory=dict)
    """Weights of rewards, by their names; the others keep theirs."""


@attrs.frozen
class Difficulty:
    """Draw tasks by the chance that their attempts will differ."""

    groups: PositiveInt = PositiveInt(4)
    """Newest groups of a task that are remembered."""
    sharpness: PositiveFloat = PositiveFloat(2.0)
    """Power of the chance that a task is drawn by: larger avoids groups without a signal more."""
    solved: Literal["avoid", "keep"] = "avoid"
    """Whether groups that are all right are avoided as well as those that are all wrong; `keep` where speed is paid."""


@attrs.frozen
class CurriculumSettings:
    """What changes while a run learns. Held-out evaluations stay as `evaluation` and `rewards` say."""

    stages: tuple[Stage, ...] = ()
    """In order; the last one lasts to the end."""
    difficulty: Difficulty | None = None
    """Draw tasks by what was measured; null: in turn."""


@attrs.frozen
class EvalSettings:
    """Evaluation on a held-out split, during training and by `kernelrl eval`."""

    split: str = "held_out"
    """Split that is evaluated."""
    every: NonNegativeInt = NonNegativeInt(0)
    """Evaluate after every so many steps; 0: only when `at_start` or `at_end` say so."""
    at_start: bool = False
    """Evaluate before the first step."""
    at_end: bool = False
    """Evaluate after the last step."""
    samples: PositiveInt = PositiveInt(1)
    """Attempts at each task."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature; null takes the training's."""
    max_tasks: PositiveInt | None = None
    """Evaluate only the first tasks of the split."""
    pass_at: tuple[PositiveInt, ...] = (PositiveInt(1),)
    """Values of k for pass@k; tasks with fewer samples give null."""
    fast_thresholds: tuple[NonNegativeFloat, ...] = (
        NonNegativeFloat(0.0),
        NonNegativeFloat(1.0),
        NonNegativeFloat(1.2),
        NonNegativeFloat(1.5),
        NonNegativeFloat(2.0),
    )
    """Values of p for fast_p."""


@attrs.frozen
class PriceSettings:
    """Prices in US dollars; null takes what policy and evaluator know, or nothing."""

    prompt: NonNegativeFloat | None = None
    """A million tokens of prompts."""
    reply: NonNegativeFloat | None = None
    """A million tokens of replies."""
    train: NonNegativeFloat | None = None
    """A million tokens, prompts included, that are trained on."""
    gpu_hour: NonNegativeFloat | None = None
    """An hour of a GPU that judges."""


@attrs.frozen
class CostSettings:
    """What the run may cost."""

    budget_usd: PositiveFloat | None = None
    """Stop when so much is spent; the run can be resumed with more. Null: no limit."""
    prices: PriceSettings = PriceSettings()
    table: Path | None = None
    """YAML file of prices by the model's name, such as `Qwen/Qwen3-8B: {prompt: 0.1, reply: 0.4, train: 0.4}`, for what
    `prices` leaves open. Null: none."""
    gpu_seconds_per_evaluation: NonNegativeFloat = NonNegativeFloat(3.0)
    """Assumed by `--dry-run`, where kernels run on a GPU."""


@attrs.frozen
class Recipe:
    """One training run."""

    tasks: Use
    """Where tasks come from."""
    backend: Use
    """Language the kernels are written in."""
    policy: Use
    """The model that is trained."""
    rewards: dict[str, RewardUse]
    """Reward components by a name of their own; the reward is the weighted sum."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Seed of everything random in the run, apart from the hidden inputs of the judge."""
    evaluator: Use = Use("local")
    """Where candidates are judged."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """How candidates are judged."""
    prompt: PromptSettings = PromptSettings()
    sampling: SamplingOptions = SamplingOptions()
    episode: EpisodeSettings = EpisodeSettings()
    history: HistorySettings = HistorySettings()
    returns: ReturnSettings = ReturnSettings()
    advantage: Use = Use("grpo")
    """Advantage estimator."""
    checkers: dict[str, Use] = attrs.field(factory=dict)
    """Hack-checkers by a name of their own."""
    forbid: tuple[str, ...] = ("no_kernel", "library_compute")
    """Rules of the checkers whose breach rejects a candidate before it runs. Every prompt states them."""
    verdicts: VerdictSettings = VerdictSettings()
    verify: VerifySettings = VerifySettings()
    feedback: Use = Use("structured")
    """What the next turn is told."""
    retriever: RetrieverUse | None = None
    """Finder of worked examples; null: none."""
    demonstrations: DemonstrationSettings = DemonstrationSettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings | None = None
    """Stages, and draws by difficulty; null: all tasks in turn."""
    eval: EvalSettings = EvalSettings()
    cost: CostSettings = CostSettings()
    loggers: dict[str, Use] = attrs.field(factory=dict)
    """Observers by a name of their own; JSONL files and the console are always there."""
    requires: tuple[str, ...] = ()
    """Plugin distributions the recipe needs, with versions, such as `kernelrl-plugin-hip>=0.1`."""
