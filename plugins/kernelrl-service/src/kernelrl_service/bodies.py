"""Bodies of requests and responses. Schemas, checks and the OpenAPI document are made from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from kernelrl_core.api.evaluators import Evaluation, EvaluationSettings, Finding, Mismatch, Outcome, Verdict
from kernelrl_core.api.policies import Message
from kernelrl_service.options import Limits

__all__ = [
    "BatchBody",
    "BatchResource",
    "Capacity",
    "CheckBody",
    "CheckedRow",
    "EpisodeBody",
    "EpisodeResource",
    "EvaluationBody",
    "EvaluationResource",
    "Health",
    "NextPrompt",
    "ScoreBody",
    "ServedBackend",
    "TaskList",
    "TaskResource",
    "TaskSummary",
    "TurnBody",
    "TurnResource",
]


@attrs.frozen
class EvaluationBody:
    """An evaluation request, as `to_json` of the core writes an `EvaluationRequest`. Required are `source`, `backend`
    and one of the three fields that name a task."""

    source: str
    """Python source of the candidate."""
    backend: str
    """Backend component name."""
    task_id: str = ""
    """Id of the task. Alone it names a task of the server."""
    task_sha256: str = ""
    """Content hash of the task. Alone it names a task of the server."""
    task_source: str = ""
    """Python source of the reference. A task that the server does not serve needs the permission `inline_tasks`."""
    source_sha256: str = ""
    """Hash of the candidate's source; empty: not compared."""
    backend_options: Mapping[str, Any] = attrs.field(factory=dict)
    """Options of the backend; empty: the defaults. Others must be those of a served recipe."""
    settings: EvaluationSettings | None = None
    """Settings of the evaluation; null: the defaults, with those of the task."""
    seed: str = ""
    """Input seed, 32 hexadecimal digits; empty: derived from the server's secret, the task and the source."""
    api_version: str = ""
    """API version of the client; empty: not compared."""
    kernels: tuple[str, ...] | None = None
    """Names of the kernels in the source; null: the server reads the source."""
    kernels_complete: bool = True
    """True if the whole source could be parsed."""
    suspect_rules: tuple[str, ...] = ()
    """Rules that checkers found broken in the source."""
    domain: str = ""
    """Owner of a task that the server does not serve. The server isolates the tasks of each client and owner."""
    package: Mapping[str, str] = attrs.field(factory=dict)
    """Files that the candidate may import: path relative to the import root -> text."""


@attrs.frozen
class EvaluationResource:
    """An accepted evaluation. `done` has `evaluation`, `failed` has `error`, `message`, `fix` and `see`."""

    id: str
    """SHA-256 of the request and of the server's versions: equal requests are the same evaluation."""
    status: Literal["queued", "running", "done", "failed"]
    """`failed`: the evaluation could not be carried out. That says nothing about the kernel; post it again."""
    cached: bool
    """True if the result existed before the request."""
    evaluation: Evaluation | None = None
    """The evaluation."""
    error: Literal["UsageError", "MissingPrerequisite", "InfrastructureError"] | None = None
    """Class of the error: the task or the options, the server's machine, or a failure that a retry may not meet."""
    message: str | None = None
    """The error."""
    fix: str | None = None
    """The action that solves it."""
    see: str | None = None
    """Entry of the page of troubleshooting."""


@attrs.frozen
class BatchBody:
    """Several evaluation requests."""

    requests: tuple[EvaluationBody, ...]
    """The requests; all are accepted, or none."""


@attrs.frozen
class BatchResource:
    """Several evaluations."""

    evaluations: tuple[EvaluationResource, ...]
    """In the order of the requests."""


@attrs.frozen
class CheckBody:
    """A kernel for a task."""

    task: str
    """Id of the task; with `task_source`, any name."""
    kernel: str
    """Python source that defines `ModelNew`, or a saved reply."""
    task_source: str = ""
    """Python source of the reference, in place of a task of the server; needs the permission `inline_tasks`."""
    recipe: str | None = None
    """Served recipe with the evaluation keys; null: the defaults."""
    backend: str | None = None
    """Backend of the kernel; null: that of the recipe, or the default one."""
    seed: int | None = None
    """Seed of the inputs; null: derived from the server's secret, so that an equal kernel has an equal result."""
    name: str = ""
    """File of the kernel, for messages that name a line of it."""
    package: Mapping[str, str] = attrs.field(factory=dict)
    """Files that the kernel may import: path relative to the import root -> text."""
    as_command: bool = False
    """True: without a recipe, the evaluation keys are those of `kernelrl check`, not those with which the server was
    started; the response has the lines that the command prints."""


@attrs.frozen
class CheckedRow:
    """The object that `kernelrl check --json` prints."""

    task: str
    """Id of the task."""
    kernel: str
    """`name` of the request, or `kernel`."""
    kernel_sha256: str | None
    """Hash of the kernel; null if none was found."""
    backend: str
    """Backend of the kernel."""
    evaluator: str
    """Evaluator of the server."""
    outcome: Outcome
    """Outcome."""
    verdict: Verdict
    """Worst severity of the findings."""
    compiled: bool
    """Whether the build succeeded."""
    correct: bool
    """Whether the outcome is `correct`."""
    tests_passed: int
    """Correctness trials that passed."""
    tests_total: int
    """Correctness trials."""
    cast: str | None
    """Precision to which the task was cast."""
    dtypes: Mapping[str, Any] | None
    """Dtypes of the task."""
    runtime_us: float | None
    """Median run time of the kernel."""
    baseline_us: float | None
    """Median run time of the baseline."""
    speedup: float | None
    """Speedup of a correct kernel; null where it was not measured."""
    speedup_ci: tuple[float, float] | None
    """95 % interval of the speedup."""
    findings: tuple[Finding, ...]
    """Findings."""
    mismatch: Mismatch | None
    """Difference of a wrong output: region, elements, likely causes."""
    message: str
    """Reason for the outcome."""
    score: Mapping[str, Any] | None
    """Score of a recipe's rewards; null without a recipe."""
    isolation: Mapping[str, Any] | None
    """Isolation of the candidate's process."""
    provenance: Mapping[str, Any]
    """GPU, versions, mode."""
    seconds: Mapping[str, float]
    """Durations."""
    reasons: Mapping[str, str]
    """Reasons for null fields."""
    lines: tuple[str, ...] = ()
    """With `as_command`: the result in words."""
    note: str = ""
    """With `as_command`: a hint at another backend."""


@attrs.frozen
class EpisodeBody:
    """A new episode."""

    task: str
    """Id of a task of the recipe."""
    recipe: str
    """Served recipe."""
    purpose: Literal["train", "eval"] = "train"
    """Selects the temperature and the share of verified turns."""
    context_tokens: int = attrs.field(default=32_768, validator=attrs.validators.ge(256))
    """Maximum tokens of prompt and reply together; prompt tokens are estimated at 3 bytes per token."""


@attrs.frozen
class NextPrompt:
    """A prompt, and the settings with which its reply should be sampled."""

    turn: int
    """Number of the turn, from 0."""
    messages: tuple[Message, ...]
    """The messages. A last one with role `assistant` is the beginning of the reply."""
    max_tokens: int
    """Largest number of tokens of the reply."""
    temperature: float
    """Sampling temperature."""
    top_p: float
    """Nucleus sampling."""
    stop: tuple[str, ...]
    """Stop strings."""
    seed: int
    """Seed of the reply."""


@attrs.frozen
class EpisodeResource:
    """An open episode."""

    id: str
    """Id of the episode."""
    task: str
    """Id of the task."""
    recipe: str
    """Name of the recipe."""
    turns: int
    """Number of finished turns."""
    done: bool
    """True after the last turn."""
    next: NextPrompt | None
    """The next prompt; null after the last turn."""


@attrs.frozen
class TurnBody:
    """The reply to the current prompt of an episode."""

    reply: str
    """Text of the reply, after the prefill."""
    stop_reason: Literal["stop", "length"] = "stop"
    """`length`: the reply was cut off."""
    thinking: str | None = None
    """Thinking that was separated from the reply."""
    turn: int | None = None
    """Number of the turn. A repeated request with the same number and reply gets the same response; null: the current
    turn."""


@attrs.frozen
class ScoreBody:
    """A reply to the first prompt of a task."""

    task: str
    """Id of a task of the recipe."""
    recipe: str
    """Served recipe."""
    reply: str
    """Text of the reply, after the prefill."""
    stop_reason: Literal["stop", "length"] = "stop"
    """`length`: the reply was cut off."""
    thinking: str | None = None
    """Thinking that was separated from the reply."""
    purpose: Literal["train", "eval"] = "train"
    """Selects the share of verified turns."""


@attrs.frozen
class TurnResource:
    """A finished turn."""

    turn: int
    """Number of the turn, from 0."""
    reward: float
    """Score of the turn: the weighted sum of its reward components."""
    parts: Mapping[str, float]
    """Weighted contribution of each reward component."""
    outcome: Outcome
    """Outcome."""
    verdict: Verdict
    """Worst severity of the findings."""
    compiled: bool
    """Whether the build succeeded."""
    correct: bool
    """Whether the outcome is `correct`."""
    speedup: float | None
    """Speedup of a correct kernel; null where it was not measured."""
    verified: bool | None
    """Result of the verification; null if there was none."""
    findings: tuple[Finding, ...]
    """Findings."""
    message: str
    """Reason for the outcome."""
    feedback: str
    """Text about this turn in the next prompt."""
    done: bool
    """True if this was the last turn."""
    next: NextPrompt | None
    """The next prompt; null after the last turn."""


@attrs.frozen
class TaskSummary:
    """A served task."""

    id: str
    """Id."""
    name: str
    """Short name."""
    split: str
    """Split."""
    level: int | None
    """Difficulty level."""
    sha256: str
    """Content hash."""
    flags: tuple[str, ...]
    """Flags of an audit."""
    recipes: tuple[str, ...]
    """Served recipes with this task."""


@attrs.frozen
class TaskList:
    """The served tasks."""

    tasks: tuple[TaskSummary, ...]
    """All of them."""


@attrs.frozen
class TaskResource(TaskSummary):
    """A served task with its reference."""

    reference: str
    """Python source of the reference."""


@attrs.frozen
class ServedBackend:
    """A backend of the server."""

    untimed: str
    """Why its kernels cannot be timed there; empty: they can."""


@attrs.frozen
class Capacity:
    """Versions, load and limits of the server."""

    api_version: str
    """API version."""
    versions: Mapping[str, str]
    """Versions of Python, of kernelrl and of its plugins, torch and Triton."""
    evaluator: str
    """Evaluator component."""
    identity: str
    """Facts on which results depend beside request and versions."""
    gpu_model: str
    """GPU model; empty: none."""
    capacity: int
    """Evaluations that may be in progress."""
    running: int
    """Evaluations in progress."""
    queued: int
    """Evaluations that wait."""
    backends: Mapping[str, ServedBackend]
    """Backends by name."""
    recipes: tuple[str, ...]
    """Served recipes."""
    inline_tasks: bool
    """Whether this client may send sources of tasks."""
    limits: Limits
    """Limits of the server."""


@attrs.frozen
class Health:
    """State of the server."""

    status: Literal["ok"]
    """`ok`."""
    api_version: str
    """API version."""
