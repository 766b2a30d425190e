"""How a candidate is judged, and what was found out about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import attrs

from kernelrl_core.types.outcomes import Finding, Outcome
from kernelrl_core.types.replies import SourceFacts
from kernelrl_core.types.tasks import Task

__all__ = [
    "BuildStatus",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationSettings",
    "Isolation",
    "Mismatch",
    "RuntimeStatistics",
]


@attrs.frozen
class EvaluationSettings:
    """How a candidate is evaluated. Every field is part of the key of an evaluation."""

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

    def for_task(self, task: Task) -> EvaluationSettings:
        """The settings with what the task and its curriculum stage demand: precision, overlay, tolerances, trials."""
        changes: dict[str, Any] = {key: getattr(task.settings, key) for key in ("atol", "rtol", "trials")}
        changes["precision"] = task.precision
        # Profile `kernelbench` evaluates on the benchmark's own inputs.
        if self.input_overlay == "none" and self.profile == "strict":
            changes["input_overlay"] = task.input_overlay
        return attrs.evolve(self, **{key: value for key, value in changes.items() if value is not None})


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
    """Names of the kernels in the source, as its backend reads them."""
    kernels_complete: bool = True
    """Whether the backend could read the whole source."""
    suspect_rules: tuple[str, ...] = ()
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
    eager_speedup: float | None = None
    """Speedup over PyTorch eager, where the baseline is `torch.compile`."""
    own_kernel_share: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.ge(0.0), attrs.validators.le(1.0)]),
    )
    """Share of the device's time in kernels of the candidate's source, 0 to 1; None where nothing was profiled."""
    checked: str = ""
    """What was compiled, where this machine can compile the candidate and not run it; empty otherwise."""
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
