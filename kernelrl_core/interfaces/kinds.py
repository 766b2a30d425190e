"""What the implementation of each kind of plugin must offer.

These are protocols: nothing needs to be inherited. An implementation is called once with its options, an instance of
the component's config class (or with nothing when it has none), and then used as described here. What is said to be
*pure* is called from the event loop, must return within milliseconds, must not change its arguments and must give
equal answers to equal questions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import attrs

from kernelrl_core.recipe.schema import MismatchSettings
from kernelrl_core.types import (
    Candidate,
    Demonstration,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Example,
    Finding,
    Message,
    Prompt,
    Reply,
    Rule,
    SourceFacts,
    Task,
    TaskAudit,
    Turn,
    WarmStartExample,
)

__all__ = [
    "Backend",
    "BackendFacts",
    "Checker",
    "Demonstrated",
    "Estimator",
    "Evaluator",
    "Feedback",
    "Logger",
    "LossSettings",
    "OptimizerSettings",
    "Policy",
    "PolicyCapabilities",
    "PolicyContext",
    "Retriever",
    "Reward",
    "RewardBounds",
    "RewardConfig",
    "SamplingSettings",
    "StreamingPolicy",
    "TaskAuditor",
    "TaskSource",
    "TrainingSample",
    "TrainingStep",
]


# --- backends -------------------------------------------------------------------------------------------------------


@attrs.frozen
class BackendFacts:
    """What a prompt says about a backend."""

    title: str
    """Name in running text, such as `Triton`."""
    fences: tuple[str, ...]
    """Tags of code fences, beside `python`, that may hold an answer for this backend."""
    instructions: str
    """How an answer must be built: imports, decorator, launch, one short paragraph."""
    example: Example
    """The one-shot example."""
    few_shot: tuple[Example, ...] = ()
    """Further examples for few-shot prompts; empty: the one-shot example stands in."""


class Backend(Protocol):
    """The driver side of a kernel language: import-light, pure, runs in our process."""

    facts: BackendFacts

    runner: str
    """`module:attribute` of the other half. Its `build` and `load` run only in the build sandbox and in the runner; its
    contract is `kernelrl_judge.protocol.BackendRunner`."""

    def source_facts(self, source: str) -> SourceFacts:
        """Device kernels and embedded sources of a candidate. `source` parses as Python; it is never executed."""
        ...


# --- evaluators -----------------------------------------------------------------------------------------------------


class Evaluator(Protocol):
    """Where a candidate is built, checked and timed. Core adds capacity, joining, retries and the verdict cache."""

    capacity: int
    """How many requests may be under way at once."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Judge one candidate. A bad kernel is an `Evaluation`; a broken machine raises.

        Raises:
            InfrastructureError: the evaluation could not be carried out; core retries it.
        """
        ...

    async def aclose(self) -> None:
        """End every process and connection. Safe to call twice."""
        ...


class TaskAuditor(Protocol):
    """An evaluator that also audits tasks."""

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Run a task's reference in a process of its own and flag what a shortcut would be paid for.

        A task that hangs, takes all memory or ends its process is `unaudited`.

        Raises:
            InfrastructureError: the process could not be started.
        """
        ...


# --- tasks ----------------------------------------------------------------------------------------------------------


class TaskSource(Protocol):
    """A collection of tasks. Listing parses; nothing of a task is executed outside the judge."""

    def splits(self) -> Sequence[str]:
        """Names of the splits, the training split first."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, in a stable order.

        Raises:
            UsageError: unknown split, missing file, a file that is not a task.
        """
        ...

    def manifest(self) -> Mapping[str, Any]:
        """What identifies the collection (revision, hashes, hold-out), saved with the run."""
        ...


class Demonstrated(Protocol):
    """A task source that also bundles answers, for a supervised warm start."""

    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        """Right and flawed answers to a task of the training split; empty for any other."""
        ...


# --- retrievers -----------------------------------------------------------------------------------------------------


class Retriever(Protocol):
    """Finds worked examples for a task."""

    def retrieve(self, task: Task, backend: str, k: int) -> Sequence[Example]:
        """The `k` best examples for `backend`, best first. Called in a worker thread."""
        ...


# --- rewards --------------------------------------------------------------------------------------------------------


@attrs.frozen
class RewardBounds:
    """Range of a reward component, before its weight."""

    low: float
    high: float
    gap: float
    """Least rise of the component from any kernel that is not correct to any correct one, all else being as
    unfavourable as possible; negative where it may fall. A component that reads only text has `low - high`. Core
    refuses a recipe whose weighted gaps do not add up to more than 0."""


class RewardConfig(Protocol):
    """What the config class of a reward offers beside its options; optionally also `needs_settings() -> {key: value}`,
    values of `EvaluationSettings` without which it is idle."""

    def bounds(self) -> RewardBounds: ...

    def needs_timing(self) -> bool:
        """Whether the component is idle unless run time is measured."""
        ...


class Reward(Protocol):
    """One component of the reward. Pure."""

    def score(self, turn: Turn) -> float:
        """A finite number within the bounds. Never asked about an `infra_error`."""
        ...


# --- checkers -------------------------------------------------------------------------------------------------------


class Checker(Protocol):
    """Looks for cheating. Pure."""

    rules: Sequence[Rule]
    """Every rule it can find broken."""

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Evidence for broken rules. Called before any run with `evaluation=None`, and again with the evaluation."""
        ...


# --- feedback -------------------------------------------------------------------------------------------------------


class Feedback(Protocol):
    """Tells the model how its turn went. Pure."""

    def format(self, turn: Turn) -> str:
        """Text for the next turn's prompt. Never asked about an `infra_error`."""
        ...


# --- policies -------------------------------------------------------------------------------------------------------


@attrs.frozen
class PolicyCapabilities:
    """What a policy can do; core refuses a recipe that asks for more."""

    losses: frozenset[str] = frozenset()
    """Names of the losses `train` knows; empty: the policy cannot learn."""
    ratios: frozenset[str] = frozenset({"token"})
    """Values of `LossSettings.ratio` that its losses know."""
    warm_start: bool = False
    """`warm_start` may be called."""
    checkpoints: bool = True
    deterministic: bool = False
    """A reply is a function of weights, prompt tokens and its own seed, so a resumed run can be exact."""
    streams: bool = False
    """`accumulate` may be called (`StreamingPolicy`)."""


@attrs.frozen
class PolicyContext:
    """What a policy is given before its first use."""

    seed: int
    """Derived from the recipe's seed; for the initial weights and nothing else that must differ between samples."""
    cache_dir: Path
    """For what may be kept between runs. Written atomically, shared by concurrent runs."""
    run_dir: Path | None
    """Directory of the run, None outside one."""
    demonstrations: Callable[[], Awaitable[Sequence[WarmStartExample]]]
    """Bundled answers of the training split in the words of training. Awaited by policies that warm-start, on a cache
    miss."""
    demonstrations_key: str
    """Hash of everything the demonstrations depend on, known without composing them: part of the key of a cached warm
    start."""
    say: Callable[[str], None]
    """Shows a line of progress to the user."""
    loss: str = ""
    """Loss of the training that follows; empty: nothing will be trained."""
    reference: bool = False
    """The initial weights will be asked for again, by a KL penalty."""


@attrs.frozen
class SamplingSettings:
    """How one reply is drawn."""

    max_tokens: int
    temperature: float
    """0 takes the most probable token."""
    top_p: float
    top_k: int
    """-1 keeps every token."""
    stop: tuple[str, ...]
    """Strings that end a reply, beside the model's own end of turn."""
    seed: int
    """Own seed of this reply, from 0 to 2**63 - 1."""


@attrs.frozen
class LossSettings:
    """Policy-gradient loss of a step."""

    name: str
    """`importance_sampling`, `ppo` or `cispo`, or another that the policy lists."""
    clip_low: float
    """PPO and CISPO keep the ratio above 1 - clip_low …"""
    clip_high: float
    """… and below 1 + clip_high."""
    normaliser: float
    """The token loss that an optimizer step sums is divided by this: fixed by core before anything is filtered."""
    kl: float = 0.0
    """Weight of the KL penalty against the reference policy (`kernelrl_core.algorithms.loss_shaping`)."""
    mismatch: MismatchSettings | None = None
    """Which samples are left out because sampler and trainer disagree about them; None: none."""
    ratio: Literal["token", "sequence"] = "token"
    """What the loss weights and clips by: the ratio of each token, or for all tokens of a reply the geometric mean of
    theirs, exp(mean(log p_train - log p_sample)) (GSPO, arXiv 2507.18071)."""


@attrs.frozen
class OptimizerSettings:
    """AdamW and its surroundings."""

    learning_rate: float
    """Of this step, after warm-up."""
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    max_grad_norm: float | None
    """Clip the gradient's global norm; None: never."""


@attrs.frozen
class TrainingSample:
    """A turn as the policy learns from it."""

    id: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """[len(tokens)] log-probabilities under the policy that sampled."""
    advantage: float


@attrs.frozen
class TrainingStep:
    """One batch and how to learn from it."""

    step: int
    samples: tuple[TrainingSample, ...]
    """In canonical order of (task, attempt, turn)."""
    substeps: int
    """Number of optimizer steps: exactly `min(substeps, len(samples))`, over consecutive and nearly equal parts."""
    loss: LossSettings
    optimizer: OptimizerSettings


class Policy(Protocol):
    """The model: samples replies, learns from them, saves itself.

    The constructor is cheap. `start` does the heavy imports and the loading; no method may block the event loop.
    """

    capabilities: PolicyCapabilities
    """Final after `start`."""
    context_tokens: int
    """Longest prompt and reply together, known after `start`."""

    async def start(self, context: PolicyContext) -> None:
        """Load the model. Called once, before everything else.

        Raises:
            UsageError, MissingPrerequisite: the model cannot be had.
        """
        ...

    def render(self, messages: Sequence[Message]) -> Prompt:
        """Apply the chat template, and say in `Prompt.opening` whether it has opened the thinking. Fast enough for the
        event loop."""
        ...

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        """Draw one reply. Calls made at the same time are batched by the policy."""
        ...

    async def train(self, step: TrainingStep) -> Mapping[str, float]:
        """Learn from a batch; the answer holds metrics such as `loss` and `grad_norm`."""
        ...

    async def save(self, directory: Path) -> Mapping[str, Any]:
        """Save weights and optimizer. `directory` exists, is empty and belongs to this checkpoint.

        Returns:
            Plain data from which `load` finds the state again, also in another process.
        """
        ...

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        """Continue from what `save` returned; `directory` is where that checkpoint lies now."""
        ...

    async def aclose(self) -> None: ...


class StreamingPolicy(Policy, Protocol):
    """A policy with the capability `streams`: it computes gradients of a step while the step is still being sampled."""

    async def accumulate(self, step: TrainingStep) -> None:
        """Forward and backward of the next samples of a step; no optimizer step, and no change to what is sampled.

        `step.samples` follow those of earlier calls and belong to the first substep; loss and optimizer are those of
        the step, its normaliser included. `train` then gets all samples of the step, these first, and must end as if
        there had been no such call. Calls are divided by groups, never by time, so every run of a recipe makes the
        same ones: rounding that depends on the division repeats itself, too.
        """
        ...


# --- advantages -----------------------------------------------------------------------------------------------------


class Estimator(Protocol):
    """Advantages of one group from its returns. A pure function on lists."""

    def __call__(self, returns: Sequence[Sequence[float]]) -> list[list[float]]:
        """`returns[attempt][turn]`, ragged; the answer has the same shape. Masked turns are left out by the caller."""
        ...


# --- loggers --------------------------------------------------------------------------------------------------------


class Logger(Protocol):
    """Observes a run. What it raises is logged against it and stops nothing; every call is made in a worker thread."""

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> None: ...

    def sample(self, row: Mapping[str, Any]) -> None:
        """A row of `samples.jsonl`."""
        ...

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A row of `metrics.jsonl`."""
        ...

    def finish(self, state: Literal["finished", "stopped", "failed"]) -> None: ...
