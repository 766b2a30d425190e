"""Settings, request and result of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import attrs

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.types.hashes import sha256_text
from kernelrl_core.types.mismatches import Mismatch
from kernelrl_core.types.outcomes import Finding, Outcome
from kernelrl_core.types.packages import package_problem
from kernelrl_core.types.replies import SourceFacts
from kernelrl_core.types.tasks import Task
from kernelrl_core.version import API_VERSION

__all__ = [
    "BuildStatus",
    "CompiledKernel",
    "DeviceKernel",
    "Evaluation",
    "EvaluationFacts",
    "EvaluationRequest",
    "EvaluationSettings",
    "ExtensionBuild",
    "Isolation",
    "Roofline",
    "RuntimeStatistics",
    "TaskDtypes",
    "TimingFacts",
]


_at_least_0: Any = attrs.validators.optional(attrs.validators.ge(0))
_above_0: Any = attrs.validators.optional(attrs.validators.gt(0))


@attrs.frozen
class EvaluationSettings:
    """How candidates are evaluated. Every field is part of the key of the evaluation cache."""

    profile: Literal["strict", "kernelbench"] = "strict"
    """`strict`: magnitude-aware comparison, exact dtype and device; `kernelbench`: that benchmark's own protocol."""
    precision: Literal["task", "fp32", "fp16", "bf16"] = "task"
    """`task`: inputs, parameters and outputs keep the dtypes that the task writes. Another value: floating-point inputs
    and parameters are cast to this dtype."""
    trials: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    """Correctness trials, each on fresh inputs. All must pass."""
    atol: float | None = attrs.field(default=None, validator=_at_least_0)
    """Absolute tolerance. Null: by the dtype of the output, 1e-4 for fp32, 1e-2 for fp16 and bf16; by `precision` where
    that casts."""
    rtol: float | None = attrs.field(default=None, validator=_at_least_0)
    """Relative tolerance. Null: as for `atol`."""
    timeout_s: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    """Wall-clock limit in seconds, from the start of loading to the last trial."""
    build_timeout_s: float = attrs.field(default=120.0, validator=attrs.validators.gt(0))
    """Limit of processor time for compiling, in seconds. Wall-clock time is limited to four times that."""
    build_memory_mib: int = attrs.field(default=8192, validator=attrs.validators.ge(256))
    """Host memory limit of each compiler process, in MiB."""
    memory_mib: int = attrs.field(default=4096, validator=attrs.validators.ge(64))
    """Host memory limit of a runner, in MiB."""
    timing: bool = False
    """Measure run time and speedup. Needs a device on which the run time of kernels is meaningful."""
    timing_method: Literal["replay", "cuda_event", "do_bench", "do_bench_impl", "host_time"] = "replay"
    """`replay` is the judge's method: replays of recorded calls on an NVIDIA GPU, windows of calls elsewhere. The
    others are methods of KernelBench."""
    timing_trials: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    """Timed samples per kernel."""
    baseline: Literal["eager", "compile"] = "eager"
    """Baseline of the speedup: PyTorch eager or `torch.compile`."""
    fit_memory: bool = False
    """Halve input sizes of a task until the inputs of one call take at most 1/32 of the memory. A size that
    the model also uses is not changed."""
    excessive_speedup: float | None = attrs.field(default=10.0, validator=_above_0)
    """Speedups above this get the note `excessive_speedup`. Null: no limit."""
    probes: tuple[
        Literal[
            "addresses",
            "parameters",
            "coverage",
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
        "coverage",
        "inputs",
        "poison",
        "late_writes",
        "order",
        "no_op",
        "operators",
        "stress",
    )
    """Probes of profile `strict`. Where calls are replayed, as on an NVIDIA GPU, inputs and state are always compared,
    outputs are always poisoned, and one replay without the candidate's own kernels is always made; of the probes below
    only those marked (all) apply. The others apply to calls that are made directly, as on the CPU.

    `addresses`: inputs are in new memory, then new values are in the same memory; finds results cached by address or
    object. `parameters` (all): every call has drawn parameters; finds ignored, copied and stale weights. `coverage`
    (all): regions of the inputs have different levels in one trial; finds inputs that are read in part. `inputs`:
    inputs are read back after the call; finds changed inputs. `poison`: free memory is poisoned; finds outputs that are
    not written. `late_writes`: an output of a timed window is read twice; finds work after its end. `order` (CPU only):
    the last trial has more threads, or programs in random order; finds races. `no_op`: a call with kernels that do
    nothing; finds decoys. `operators`: torch operators are listed; finds computation by the library. `stress` (all):
    harder inputs of the task's domain; finds shortcuts. `sizes` (all; not in the default): inputs of
    another size."""
    library_share: float = attrs.field(default=0.35, validator=attrs.validators.ge(0))
    """Largest share of the work that torch or another library may do beside the candidate's kernels. Recorded calls:
    device time of library kernels, over the smaller of the times of candidate and reference without copies and fills.
    Direct calls: bytes that torch's operators move or leave, over those of the task's tensors. 0: none."""
    min_precision: Literal["none", "bf16", "tf32", "fp32"] = "none"
    """Lowest arithmetic precision that is not suspect for a task in fp32, estimated from errors against double
    precision; fp16 is treated as tf32: both have 10 mantissa bits."""
    input_overlay: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] = "none"
    """Multiply floating-point inputs by random signs, log-normal factors, one factor per row, or all three."""

    @property
    def cast(self) -> Literal["fp32", "fp16", "bf16"] | None:
        """Precision to which inputs and parameters are cast; None: they keep the dtypes of the task.

        KernelBench casts to fp32 unless a precision is chosen.
        """
        if self.precision != "task":
            return self.precision
        return "fp32" if self.profile == "kernelbench" else None

    def for_task(self, task: Task) -> EvaluationSettings:
        """The settings with the precision, overlay, tolerances and trials of the task and its curriculum stage."""
        changes: dict[str, Any] = {key: getattr(task.settings, key) for key in ("atol", "rtol", "trials")}
        changes["precision"] = task.precision
        # Profile `kernelbench` evaluates on the benchmark's own inputs.
        if self.input_overlay == "none" and self.profile == "strict":
            changes["input_overlay"] = task.input_overlay
        return attrs.evolve(self, **{key: value for key, value in changes.items() if value is not None})


@attrs.frozen
class EvaluationRequest:
    """Everything an evaluator needs, as plain data without paths or live objects."""

    task_id: str
    """Id of the task."""
    task_source: str
    """Python source of the reference."""
    task_sha256: str
    """Content hash of the task."""
    source: str
    """Python source of the candidate."""
    source_sha256: str
    """Hash of the candidate's source."""
    backend: str
    """Backend component name; remote workers resolve it in their own registry."""
    backend_options: Mapping[str, Any]
    """Options of the backend as plain data."""
    settings: EvaluationSettings
    """Settings of the evaluation, with those of the task applied."""
    seed: str
    """Input seed (128 bits, hexadecimal), derived from the run's secret. The runner never sees it."""
    api_version: str
    """API version of the sender; a worker with another version refuses the request."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels in the source, as parsed by the backend."""
    kernels_complete: bool = True
    """True if the backend could parse the whole source."""
    suspect_rules: tuple[str, ...] = ()
    """Rules that checkers found broken in the source. They enable probes that are too expensive for all candidates."""
    domain: str = ""
    """Owner of the task (`Task.domain`). Part of the cache key: domains share no evaluations."""
    package: Mapping[str, str] = attrs.field(factory=dict)
    """Files that the candidate may import: path relative to the import root -> text. They are the user's own, as the
    task is. Training has none: a model could import a finished kernel."""

    def require_intact(self) -> None:
        """Check a request that another process sent.

        Raises:
            InfrastructureError: its sender has another API version, or a source does not match its hash.
        """
        if self.api_version != API_VERSION:
            raise InfrastructureError(
                f"the request has API version {self.api_version}, this evaluator has {API_VERSION}"
            )
        if sha256_text(self.source) != self.source_sha256 or sha256_text(self.task_source) != self.task_sha256:
            raise InfrastructureError("a source of the request does not match its hash")
        if problem := package_problem(self.package):
            raise InfrastructureError(f"the package of the request: {problem}")


class BuildStatus(StrEnum):
    """Progress of the build."""

    NOT_REACHED = "not_reached"
    """The evaluation ended before the build."""
    FAILED = "failed"
    """The build failed."""
    BUILT = "built"
    """The build succeeded."""


@attrs.frozen
class RuntimeStatistics:
    """Run time of one call, in microseconds."""

    median_us: float
    """Median of the samples."""
    p10_us: float
    """10th percentile of the samples."""
    p90_us: float
    """90th percentile of the samples."""
    ci95_us: tuple[float, float]
    """Bootstrap 95 % confidence interval of the median."""
    n: int
    """Number of samples."""


@attrs.frozen
class CompiledKernel:
    """A device kernel with the resources that its compiler reports.

    The compiler prints what the candidate's source makes it print, so the report is evidence and no proof.
    """

    name: str
    """Name of the kernel function."""
    registers: int
    """Registers per thread."""
    spill_stores_bytes: int = 0
    """Spilled registers that are written to local memory, per thread."""
    spill_loads_bytes: int = 0
    """Spilled registers that are read from local memory, per thread."""
    stack_bytes: int = 0
    """Local memory of the stack frame, per thread."""
    shared_bytes: int = 0
    """Static shared memory per block."""


@attrs.frozen
class ExtensionBuild:
    """Build of one extension that the candidate requested."""

    route: str
    """Route of the build: `bound`, `pybind`, `ordinary`, or `unchecked` if this machine cannot compile the device code.
    `failed` or `denied` if there is no result."""
    reason: str = ""
    """Reason why a faster route was not possible."""
    cached: bool = False
    """True if the build cache had the result."""
    seconds: float | None = None
    """Wall time of the build; None if it ended without a result."""
    cpu_seconds: float = 0.0
    """CPU time of the build."""
    stages: Mapping[str, float] = attrs.field(factory=dict)
    """CPU time by step of the build."""
    final: bool = True
    """False if a limit that depends on the load of the machine ended the build."""


@attrs.frozen
class DeviceKernel:
    """A kernel, copy or fill of the recorded call.

    The candidate's process reports the list of kernels, so it is evidence and no proof.
    """

    name: str
    """Name of the function."""
    origin: Literal["own", "library", "glue"]
    """`own`: built from the candidate's source; `library`: from cuBLAS, cuDNN or ATen; `glue`: a copy, fill or
    concatenation."""
    calls: int
    """Number of launches in one call."""


@attrs.frozen
class Roofline:
    """Comparison of the run time with the minimum that the device permits.

    Compulsory bytes are the inputs, parameters and outputs, each moved once. Operations are those of the matrix
    products and convolutions of the reference.
    """

    compulsory_bytes: float
    """Bytes that one call must move."""
    flops: float
    """Floating-point operations of one call."""
    bandwidth_gb_s: float
    """Measured memory bandwidth of the device, in 10^9 bytes per second."""
    tflops: float
    """Measured arithmetic throughput of the device, in 10^12 operations per second."""
    floor_us: float
    """Minimum time of one call: the larger of the times that the bytes and the operations take."""
    achieved_bandwidth_gb_s: float
    """Compulsory bytes per run time, in 10^9 bytes per second."""
    bandwidth_share: float
    """`achieved_bandwidth_gb_s` divided by `bandwidth_gb_s`."""
    achieved_tflops: float
    """Operations per run time, in 10^12 operations per second."""
    flop_share: float
    """`achieved_tflops` divided by `tflops`."""
    memory_floor_us: float | None = None
    """Minimum time of one call if only the bytes that decide the output are read. Measured where `bandwidth_share` is
    above 1; None elsewhere."""


@attrs.frozen
class TimingFacts:
    """Facts about the measurement of the run times."""

    method: str
    """`replay`, `calls` (windows of direct calls), or a method of KernelBench."""
    rounds: int = 0
    """Number of rounds that count."""
    dropped_rounds: int = 0
    """Number of rounds that do not count, because the clock of the device was not steady."""
    calls_per_window: int = 0
    """Number of calls in a window of the candidate, and in one of the baseline where calls are replayed."""
    baseline_calls_per_window: int = 0
    """Number of direct calls in a window of the baseline."""
    trials: int = 0
    """Number of samples of a method of KernelBench."""
    fewer_slots_for_memory: bool = False
    """True if the device had too little free memory for the usual number of input slots."""
    sm_ghz: float | None = None
    """Clock frequency of the multiprocessors in the first window, in GHz."""
    waiting_share: float = 0.0
    """Share of the time of windows on the CPU in which threads waited for a processor that other programs had. It does
    not count in the run times."""
    host_beyond_device_us: float | None = None
    """Median of the host time of a window beyond its device time."""


@attrs.frozen
class TaskDtypes:
    """Dtypes of the tensors of a task as they are used, after a cast. Each is named once, such as `float16`."""

    inputs: tuple[str, ...]
    """Dtypes of the inputs, in their order."""
    parameters: tuple[str, ...]
    """Dtypes of the parameters and buffers in the state of the model."""
    outputs: tuple[str, ...]
    """Dtypes of the outputs, in their order."""

    def __str__(self) -> str:
        parts = (("inputs", self.inputs), ("parameters", self.parameters), ("outputs", self.outputs))
        return "; ".join(f"{name} {', '.join(dtypes)}" for name, dtypes in parts if dtypes)

    @property
    def are_usual(self) -> bool:
        """Whether float32 is the only floating-point or complex dtype."""
        names = (*self.inputs, *self.parameters, *self.outputs)
        return all(name == "float32" for name in names if "float" in name or "complex" in name)


@attrs.frozen
class EvaluationFacts:
    """Facts about an evaluation beside its outcome. Checkers and feedback formatters read them.

    A field with its default value was not determined, or there is nothing to report.
    """

    cast: str = ""
    """Precision to which inputs and parameters were cast, such as `fp16`; empty: they kept the dtypes of the task."""
    dtypes: TaskDtypes | None = None
    """Dtypes of the task as they were used; None if the candidate ended before the reference was called."""
    phases_s: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time of the judge by phase, builds within it included."""
    builds: tuple[ExtensionBuild, ...] = ()
    """Builds of the candidate's extensions."""
    parameters: str = ""
    """Description of how the parameters of the candidate were matched to those of the reference."""
    computing_operators: tuple[str, ...] | None = None
    """Operators of torch, or library kernels, that did a large part of the computation. None if they were not listed,
    or if library kernels took little of the time of a recorded call."""
    launches: tuple[str, ...] | None = None
    """Kernels of the candidate that its calls launched, and functions of its extensions that they called. None if that
    was not observed."""
    library_symbols: tuple[str, ...] = ()
    """Symbols of libraries that compute, to which an extension is linked. Empty if the recorded kernels are known."""
    stress: str = ""
    """Result of the probe `stress`: `passed`, `failed`, `not tried`, or `not decided` with the reason."""
    stress_left: str = ""
    """Input families that the probe `stress` does not use for this task, with the reasons."""
    not_covered: str = ""
    """Regions of the inputs on which the output hardly depends, so that the probe `coverage` shows nothing there."""
    error_ratio: float | None = None
    """Largest error on harder inputs, divided by that of the reference."""
    no_op: str = ""
    """Result of the probe `no_op`: the outcome of the candidate without its kernels, or `not tried` with the
    reason."""
    direct_because: str = ""
    """Reason why direct calls replaced replays for candidate and baseline: the reference cannot be recorded."""
    device_kernels: tuple[DeviceKernel, ...] = ()
    """Kernels, copies and fills of the recorded call, by number of launches. Empty if no call was recorded."""
    library_kernels: tuple[str, ...] = ()
    """Names of the first library kernels of the recorded call."""
    library_kernel_share: float | None = None
    """Estimated share of device time in library kernels; None if no call was recorded."""
    timing: TimingFacts | None = None
    """Facts about the measurement of the run times; None if nothing was timed."""
    roofline: Roofline | None = None
    """Comparison of the run time with the minimum that the device permits; None if nothing was timed."""


@attrs.frozen
class Isolation:
    """Isolation of the candidate's process."""

    level: int = 0
    """0: separate process; 1: plus resource limits; 2: plus user and pid namespaces; 3: plus private mounts and
    network; 4: plus seccomp."""
    missing: tuple[str, ...] = ()
    """Layers that this machine does not permit."""


@attrs.frozen
class Evaluation:
    """Result of evaluating one candidate."""

    outcome: Outcome
    """Outcome of the evaluation; the outcome of the turn unless findings or stated rules change it."""
    message: str = ""
    """Cause of the outcome, short and cleaned, for the model."""
    detail: str = ""
    """Complete log, for users."""
    build: BuildStatus = BuildStatus.NOT_REACHED
    """Progress of the build."""
    tests_passed: int = 0
    """Number of correctness trials that passed."""
    tests_total: int = 0
    """Number of correctness trials of the settings."""
    mismatch: Mismatch | None = None
    """First difference of an output; None if outputs were equal within tolerance or not compared."""
    runtime: RuntimeStatistics | None = None
    """Run time of the candidate; None if it was not measured."""
    baseline: RuntimeStatistics | None = None
    """Run time of the baseline; None if it was not measured."""
    speedup: float | None = None
    """Baseline median divided by candidate median; None if it could not be measured."""
    speedup_ci: tuple[float, float] | None = None
    """95 % confidence interval of `speedup`."""
    not_timed: str = ""
    """Reason why a correct kernel was not timed although `timing` is set."""
    findings: tuple[Finding, ...] = ()
    """Findings of the judge's probes."""
    hidden: SourceFacts = SourceFacts()
    """Texts that the candidate built at run time and that its source does not contain, with their kernels."""
    eager_speedup: float | None = None
    """Speedup over PyTorch eager, if the baseline is `torch.compile`."""
    kernels: tuple[CompiledKernel, ...] = ()
    """Device kernels of the candidate's CUDA extensions, as compiled. Empty for other backends."""
    own_kernel_share: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.ge(0.0), attrs.validators.le(1.0)]),
    )
    """Share of device time in the candidate's own kernels; None if no call was recorded."""
    final: bool = True
    """False if the load of the machine may have decided the outcome, such as a build that reached its time limit. Such
    an evaluation is not cached."""
    checked: str = ""
    """Names of the compiled kernels, if this machine can compile the candidate but not run it; empty otherwise."""
    facts: EvaluationFacts = attrs.field(factory=EvaluationFacts)
    """Facts for checkers and feedback: builds, launches, bandwidth, results of probes."""
    isolation: Isolation = Isolation()
    """Isolation of the candidate's process."""
    provenance: Mapping[str, Any] = attrs.field(factory=dict)
    """GPU, driver, versions, mode, task hash, settings."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time per phase, such as `build` and `run`."""

    @property
    def compiled(self) -> bool:
        """True if the build succeeded."""
        return self.build is BuildStatus.BUILT

    @property
    def correct(self) -> bool:
        """True if the outcome is `correct`."""
        return self.outcome is Outcome.CORRECT
