"""The values that flow through a run, in the order in which they come into being.

    Task ─> Prompt ─> Reply ─> Extraction ─> Candidate ─> EvaluationRequest ─> Evaluation ─> Turn ─> Episode ─> Group

All are frozen and plain: text, numbers, tuples and mappings, so each can be written as JSON (`kernelrl_core.codec`),
sent to another machine and compared. Units are in the names. Nothing here imports more than attrs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import attrs

__all__ = [
    "BuildStatus",
    "Candidate",
    "Demonstration",
    "EmbeddedSource",
    "Episode",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationSettings",
    "Example",
    "Extraction",
    "Finding",
    "Group",
    "Isolation",
    "KernelFact",
    "Message",
    "Mismatch",
    "Outcome",
    "Prompt",
    "Reply",
    "Rule",
    "RuntimeStatistics",
    "SampleId",
    "Score",
    "Severity",
    "SourceFacts",
    "Task",
    "TaskAudit",
    "TaskSettings",
    "Turn",
    "Verdict",
    "WarmStartExample",
    "sha256_text",
]


def sha256_text(text: str) -> str:
    """Hex SHA-256 of the UTF-8 bytes of `text` (64 characters)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- what is asked --------------------------------------------------------------------------------------------------


@attrs.frozen
class TaskSettings:
    """What a curriculum asks of a task in place of the recipe's own; nothing where it is empty."""

    atol: float | None = None
    """Absolute tolerance."""
    rtol: float | None = None
    """Relative tolerance."""
    trials: int | None = None
    """Correctness trials."""
    weights: Mapping[str, float] = attrs.field(factory=dict, hash=False)
    """Weights of rewards, by their names in the recipe."""


@attrs.frozen
class Task:
    """A reference program in KernelBench's format: `Model`, `get_inputs()`, `get_init_inputs()`."""

    id: str
    """Unique name within a run, such as `kernelbench/1/19` or `starter/1/relu`."""
    reference: str
    """Python source of the reference. Parsed by anyone, executed by the judge alone."""
    split: str = "train"
    """Name of the split the task belongs to (`train`, `held_out`, …)."""
    level: int | None = None
    """Difficulty level, where the source has levels."""
    name: str = ""
    """Short readable name."""
    flags: tuple[str, ...] = ()
    """Quality flags of an audit, such as `constant_output`."""
    precision: str | None = None
    """Precision the task demands (`fp32`, `fp16`, `bf16`), or None for the recipe's."""
    input_overlay: str | None = None
    """Overlay that mends the task's inputs (`EvaluationSettings.input_overlay`), where the recipe names none."""
    settings: TaskSettings = TaskSettings()
    """How it is judged and paid in the stage of a curriculum."""

    @property
    def sha256(self) -> str:
        """Content hash: the identity of a task wherever results are cached or compared."""
        return sha256_text(self.reference)


@attrs.frozen
class TaskAudit:
    """What running a task's reference showed about the task."""

    task_id: str
    sha256: str
    """Content hash of the task."""
    conditions: Mapping[str, Any]
    """Settings and versions of the audit; another audit under equal conditions need not be made."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """What was measured, by the flag (`kernelrl_core.audits.FLAGS`) that it led to."""
    mended_by: str | None = None
    """Input overlay under which no shortcut passes any more."""
    unaudited: str | None = None
    """Why the audit could not be made; None where it was."""
    provenance: Mapping[str, Any] = attrs.field(factory=dict)
    """Where it was made: device and versions."""


@attrs.frozen
class Demonstration:
    """A bundled answer to a task, for a supervised warm start. Reinforcement learning never sees one."""

    source: str
    """Python source that defines `ModelNew`, or text that is deliberately not that."""
    backend: str
    """Backend the answer is written for."""
    outcome: Outcome
    """How the answer must end when judged; a test checks it."""
    flaw: str = ""
    """Name of the planted flaw, empty for a right answer."""
    weight: float = 1.0
    """Relative share of this answer among the answers to its task."""


@attrs.frozen
class WarmStartExample:
    """A demonstration as the policy sees it: composed by core exactly like the prompts of training."""

    messages: tuple[Message, ...]
    """The conversation up to the reply; with earlier turns and their feedback where the recipe has several turns."""
    reply: str
    """Text of the reply that is imitated."""
    weight: float
    """Relative share among all examples."""
    task_id: str
    outcome: Outcome
    """How the reply ends when judged."""


@attrs.frozen
class Example:
    """A worked pair of reference and kernel shown in a prompt."""

    reference: str
    kernel: str
    name: str = ""
    origin: str = ""
    """Where the pair comes from (corpus and revision), for the journal."""
    similarity: float | None = None


# --- what the model says --------------------------------------------------------------------------------------------


@attrs.frozen
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@attrs.frozen
class Prompt:
    """A rendered conversation: what the policy is asked to continue."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    """Token ids after the policy's chat template; their number is what every budget counts."""
    opening: str = ""
    """The opening think tag with which the chat template ends, see `kernelrl_core.extraction.opened_thinking`: the
    reply begins inside thinking, and its text behind the tag."""

    @property
    def begun(self) -> str:
        """What the prompt holds of the reply: `opening`, or else a last message of the assistant."""
        if self.opening or not self.messages or self.messages[-1].role != "assistant":
            return self.opening
        return self.messages[-1].content


@attrs.frozen
class Reply:
    """One sampled continuation of a prompt."""

    text: str
    """The raw text behind what the prompt holds of the reply (`Prompt.begun`), thinking included."""
    tokens: tuple[int, ...]
    """[n] sampled token ids, the stop token included when it was sampled."""
    logprobs: tuple[float, ...]
    """[n] natural-log probability of each sampled token under the sampling policy, at temperature 1."""
    stop_reason: Literal["stop", "length"]
    """`stop`: it ends with the model's own end of turn or at a stop string; `length`: it was cut, at `max_tokens` or
    elsewhere."""
    thinking: str | None = None
    """Thinking as parsed by the policy's renderer; None when the renderer does not separate it."""


@attrs.frozen
class KernelFact:
    """A device kernel found in a candidate's source by its backend's driver half."""

    name: str
    line: int
    launched: bool
    """Some call in the source launches it."""
    reached: bool
    """A launch of it can be reached from `ModelNew.forward`."""


@attrs.frozen
class EmbeddedSource:
    """Source of another language inside the Python file."""

    language: str
    """`cuda`, `hip`, `cpp` or `triton`."""
    source: str
    line: int
    """Line of the Python file (from 1) where the text begins."""


@attrs.frozen
class SourceFacts:
    """What a backend can say about a candidate's source without running it."""

    kernels: tuple[KernelFact, ...] = ()
    embedded: tuple[EmbeddedSource, ...] = ()
    unread: str = ""
    """What could not be read, so that kernels and launches may be there that are not among `kernels`; empty for
    nothing."""


@attrs.frozen
class Candidate:
    """A kernel as the model wrote it. The same bytes are checked, evaluated and stored."""

    source: str
    backend: str
    thinking: str = ""
    """Text of the reply's thinking, for rewards that look at it."""
    summary: str = ""
    """The model's own summary of its change, where the prompt asks for one."""
    facts: SourceFacts = SourceFacts()

    @property
    def sha256(self) -> str:
        return sha256_text(self.source)


@attrs.frozen
class Extraction:
    """The one reading of a reply: either a candidate or the reason there is none."""

    candidate: Candidate | None
    problem: Literal["", "no_code", "truncated", "syntax", "no_model"] = ""
    """Empty when there is a candidate."""
    message: str = ""
    """What to tell the model about `problem`."""
    thinking: str = ""
    summary: str = ""


# --- what is judged -------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """How a turn ended: exactly one of these."""

    FORMAT_ERROR = "format_error"
    """No usable code in the reply, or the reply was cut off."""
    REJECTED = "rejected"
    """A rule that the prompt states was broken: by the source, and nothing was run, or by what was seen when it ran."""
    COMPILE_ERROR = "compile_error"
    """The kernel does not build, or its module does not load."""
    RUNTIME_ERROR = "runtime_error"
    """Constructing or calling `ModelNew` failed."""
    TIMEOUT = "timeout"
    """The time limit of the candidate was reached."""
    OUT_OF_MEMORY = "out_of_memory"
    """A memory limit was reached."""
    INCORRECT = "incorrect"
    """It ran, and values, shape, dtype, device or structure of an output are wrong."""
    HACKED = "hacked"
    """Dynamic evidence that the answer or the time is not real."""
    CORRECT = "correct"
    """Every trial passed."""
    INFRA_ERROR = "infra_error"
    """Our fault. Never rewarded, cached or shown to the model: retried, then the sample is masked and counted."""


class Severity(StrEnum):
    """How much a finding weighs."""

    NOTE = "note"
    SUSPECT = "suspect"
    HACK = "hack"


class Verdict(StrEnum):
    """The worst severity among the findings of a turn."""

    CLEAN = "clean"
    SUSPECT = "suspect"
    HACK = "hack"


@attrs.frozen
class Rule:
    """A rule that a checker can find broken."""

    id: str
    """Stable name, unique within its checker."""
    severity: Severity
    statement: str
    """One sentence in the imperative. Prompt, feedback and documentation use these very words."""
    reason: str = ""
    """Why the rule exists, for the documentation."""


@attrs.frozen
class Finding:
    """Evidence that a rule was broken."""

    rule: str
    severity: Severity
    evidence: str
    """What was seen, with line and excerpt where there is a source."""
    line: int | None = None
    checker: str = ""
    """Name of the checker in the recipe, or `judge`."""


@attrs.frozen
class EvaluationSettings:
    """How a candidate is judged. Every field is part of the identity of a verdict."""

    profile: Literal["strict", "kernelbench"] = "strict"
    """`strict`: magnitude-aware comparison and exact dtype and device; `kernelbench`: that benchmark's own protocol."""
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Dtype of floating-point inputs and parameters."""
    trials: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    """Correctness trials, each on fresh inputs. All must pass."""
    atol: float | None = None
    """Absolute tolerance; None takes the precision's (fp32 1e-4, fp16 and bf16 1e-2)."""
    rtol: float | None = None
    """Relative tolerance; None takes the precision's."""
    timeout_s: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    """Wall-clock limit from the start of loading to the last trial."""
    build_timeout_s: float = attrs.field(default=120.0, validator=attrs.validators.gt(0))
    """Wall-clock limit for compiling."""
    build_memory_mib: int = attrs.field(default=8192, validator=attrs.validators.ge(256))
    """Host memory limit of each compiler process, in MiB."""
    memory_mib: int = attrs.field(default=4096, validator=attrs.validators.ge(64))
    """Host memory limit of a runner, in MiB."""
    timing: bool = False
    """Measure run time and speedup. Needs hardware on which that is honest."""
    timing_method: Literal["window", "cuda_event", "do_bench", "do_bench_impl", "host_time"] = "window"
    """`window` is the judge's clock; the others are KernelBench's."""
    timing_trials: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    """Timed samples per kernel."""
    baseline: Literal["eager", "compile"] = "eager"
    """What speedup is measured against."""
    fit_memory: bool = False
    """Halve sizes that only the inputs of a task depend on until a call's inputs take 1/32 of the memory, or less."""
    profile_kernels: bool = False
    """Run one call of a correct kernel under a profiler, for feedback that names the kernels it spends its time in."""
    excessive_speedup: float | None = 10.0
    """Speedups above this are suspect; None turns the check off."""
    probes: tuple[
        Literal[
            "addresses",
            "parameters",
            "inputs",
            "poison",
            "late_writes",
            "order",
            "no_op",
            "operators",
            "stress",
            "sizes",
        ],
        ...,
    ] = (
        "addresses",
        "parameters",
        "inputs",
        "poison",
        "late_writes",
        "order",
        "no_op",
        "operators",
        "stress",
    )
    """What profile `strict` looks for beyond right values: results kept by address or object, code that knows its
    parameters, changed inputs, memory that is read before it is written, writes after the end of a call, outputs that
    depend on the order of programs or threads, kernels on which the output does not depend, operators of torch that
    compute, and shortcuts that inputs of other magnitudes and signs show. `sizes`, which is not among the usual ones,
    suspects kernels that are right for one size alone."""
    min_precision: Literal["none", "bf16", "tf32", "fp32"] = "none"
    """The narrowest arithmetic that is clean where `precision` is fp32, by what its errors against double precision
    show; fp16 rounds as tf32 does. What is narrower is suspect."""
    input_overlay: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] = "none"
    """What floating-point inputs are multiplied with: random signs, log-normal factors, a factor per row, or all."""

    def of_stage(self, task: Task) -> EvaluationSettings:
        """The settings with the tolerances and trials that a curriculum asks of the task."""
        asked = {key: getattr(task.settings, key) for key in ("atol", "rtol", "trials")}
        changes: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
        return attrs.evolve(self, **changes) if changes else self


@attrs.frozen
class EvaluationRequest:
    """Everything an evaluator needs, as plain data: no paths and no live objects."""

    task_id: str
    task_source: str
    task_sha256: str
    source: str
    """Candidate source."""
    source_sha256: str
    backend: str
    """Backend component name; remote workers resolve it in their own registry."""
    backend_options: Mapping[str, Any]
    settings: EvaluationSettings
    seed: str
    """Hex input seed (128 bits), derived from the run's secret. The runner never sees it."""
    api_version: str
    """kernelrl version of the sender; a worker of another version refuses the request."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels in the source, as its backend reads them; `…` stands for such as it could not read."""
    suspicions: tuple[str, ...] = ()
    """Rules that the source breaks as its checkers see it: they choose probes that are too dear for everyone."""


class BuildStatus(StrEnum):
    """How far the build came."""

    NOT_REACHED = "not_reached"
    FAILED = "failed"
    BUILT = "built"


@attrs.frozen
class RuntimeStatistics:
    """Run time of one call, in microseconds."""

    median_us: float
    p10_us: float
    p90_us: float
    ci95_us: tuple[float, float]
    """Bootstrap 95 % interval of the median."""
    n: int
    """Number of samples."""


@attrs.frozen
class Mismatch:
    """How an output differs from the expected one."""

    kind: Literal["structure", "shape", "dtype", "device", "values", "non_finite", "memory", "inputs", "effects"]
    output: str
    """Which output, or what else a call changes, as a path such as `[0]`; empty for a single tensor."""
    expected: str = ""
    """Expected structure, shape, dtype or device."""
    actual: str = ""
    max_abs: float | None = None
    """Largest absolute difference."""
    mean_abs: float | None = None
    """Mean absolute difference."""
    wrong_share: float | None = None
    """Share of elements outside the tolerance, from 0 to 1."""


@attrs.frozen
class Isolation:
    """How well the candidate was kept apart."""

    level: int = 0
    """0: another process; 1: and limits; 2: and user and pid namespaces; 3: and private mounts and network; 4: and
    seccomp."""
    missing: tuple[str, ...] = ()
    """Layers this machine did not allow."""


@attrs.frozen
class Evaluation:
    """What an evaluator found out about one candidate."""

    outcome: Outcome
    message: str = ""
    """For the model: cleaned, short, with the cause."""
    detail: str = ""
    """For people: the whole log."""
    build: BuildStatus = BuildStatus.NOT_REACHED
    tests_passed: int = 0
    tests_total: int = 0
    mismatch: Mismatch | None = None
    runtime: RuntimeStatistics | None = None
    baseline: RuntimeStatistics | None = None
    speedup: float | None = None
    """Baseline median over candidate median; None where it cannot be measured honestly."""
    speedup_ci: tuple[float, float] | None = None
    findings: tuple[Finding, ...] = ()
    """What the judge's probes found."""
    hidden: SourceFacts = SourceFacts()
    """What was built and does not stand in the candidate's source: its texts, and the kernels in them."""
    profile: Mapping[str, Any] = attrs.field(factory=dict)
    """Facts for the feedback: registers, spills, bandwidth, notes such as how parameters were matched."""
    isolation: Isolation = Isolation()
    provenance: Mapping[str, Any] = attrs.field(factory=dict)
    """GPU, driver, versions, mode, task hash, settings."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time by stage, such as `build` and `run`."""

    @property
    def compiled(self) -> bool:
        return self.build is BuildStatus.BUILT

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def own_kernel_share(self) -> float | None:
        """Share of the device's time in kernels of the candidate's source, 0 to 1; None where nobody profiled."""
        share = self.profile.get("own_kernel_share")
        return float(share) if isinstance(share, int | float) and 0.0 <= share <= 1.0 else None


# --- what is learnt -------------------------------------------------------------------------------------------------


@attrs.frozen(order=True)
class SampleId:
    """Place of a turn in a run. Their order is the order in which training consumes samples."""

    step: int
    task_index: int
    """Index of the task within the step's batch."""
    attempt: int
    turn: int

    def __str__(self) -> str:
        return f"{self.step}.{self.task_index}.{self.attempt}.{self.turn}"


@attrs.frozen
class Score:
    """Reward of one turn."""

    total: float
    """Sum of the weighted parts: the very number that is trained on."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """Weighted contribution of each reward component, by its name in the recipe."""


@attrs.frozen
class Turn:
    """One prompt, its reply and everything concluded about it: one training sample."""

    id: SampleId
    task: Task
    prompt: Prompt
    reply: Reply
    extraction: Extraction
    evaluation: Evaluation | None
    """None when nothing was run, and when what was seen as it ran broke a rule (`format_error`, `rejected`)."""
    findings: tuple[Finding, ...]
    """Findings of all checkers and of the judge."""
    outcome: Outcome
    verdict: Verdict
    message: str
    """Why the turn ended as it did, for the model and for `check`."""
    score: Score = Score(0.0)
    feedback: str = ""
    """What the next turn's prompt says about this one."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time by stage: `sample`, `check`, `evaluate`, …"""
    verified: bool | None = None
    """Whether a second judgement, which pays nothing, found it correct as well; None where there was none."""
    behind: int = 0
    """Updates that are made between the weights that drew the reply and those that learn from it, other than by
    substeps; 0 unless steps are sampled ahead."""

    @property
    def candidate(self) -> Candidate | None:
        return self.extraction.candidate

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def speedup(self) -> float | None:
        return self.evaluation.speedup if self.evaluation is not None and self.correct else None

    @property
    def masked(self) -> bool:
        """Whether training must leave this turn out."""
        return self.outcome is Outcome.INFRA_ERROR


@attrs.frozen
class Episode:
    """The turns of one attempt at a task, in order."""

    turns: tuple[Turn, ...]


@attrs.frozen
class Group:
    """All attempts at one task in one step."""

    task: Task
    episodes: tuple[Episode, ...]
