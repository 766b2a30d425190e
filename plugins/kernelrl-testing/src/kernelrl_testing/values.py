"""Builders of the values that flow through a run. A test names the fields it is about; defaults fill the rest."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Literal

from kernelrl_core.types import (
    BuildStatus,
    Candidate,
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    EvaluationRequest,
    EvaluationSettings,
    Extraction,
    Finding,
    Mismatch,
    Outcome,
    Prompt,
    Reply,
    Roofline,
    RuntimeStatistics,
    SampleId,
    Score,
    Severity,
    Task,
    TimingFacts,
    Turn,
    Verdict,
    sha256_text,
)
from kernelrl_core.version import API_VERSION

__all__ = [
    "REFERENCE",
    "SOURCE",
    "generated_turns",
    "make_candidate",
    "make_evaluation",
    "make_reply",
    "make_request",
    "make_runtime",
    "make_task",
    "make_timed_evaluation",
    "make_turn",
    "turns_of_every_outcome",
]

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64)]


def get_init_inputs():
    return []
"""
"""A complete task source."""

SOURCE = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
"""A candidate that parses. It has no kernel."""

_NOT_RUN = (Outcome.FORMAT_ERROR, Outcome.REJECTED, Outcome.INFRA_ERROR)
_NO_CANDIDATE = (Outcome.FORMAT_ERROR, Outcome.INFRA_ERROR)
_TRIALS = 5
_BY_OUTCOME: Any = object()


def make_task(id: str = "task", reference: str = REFERENCE, **fields: Any) -> Task:  # noqa: A002
    """A task of the training split."""
    return Task(id, reference, **fields)


def make_reply(
    text: str = "",
    tokens: int | tuple[int, ...] = 0,
    *,
    stop_reason: Literal["stop", "length"] = "stop",
    thinking: str | None = None,
    **fields: Any,
) -> Reply:
    """A reply that stopped by itself.

    Args:
        tokens: token ids, or their number. Log-probabilities are 0 unless `logprobs` is given.
    """
    ids = tuple(range(1, tokens + 1)) if isinstance(tokens, int) else tokens
    logprobs = fields.pop("logprobs", (0.0,) * len(ids))
    return Reply(text, ids, logprobs, stop_reason, thinking, **fields)


def make_candidate(source: str = SOURCE, backend: str = "triton", **fields: Any) -> Candidate:
    """A candidate without thinking, whose source facts are empty."""
    return Candidate(source, backend, **fields)


def make_runtime(median_us: float = 50.0, *, n: int = 100) -> RuntimeStatistics:
    """Run time without any spread."""
    return RuntimeStatistics(median_us, median_us, median_us, (median_us, median_us), n)


def make_evaluation(outcome: Outcome = Outcome.CORRECT, **fields: Any) -> Evaluation:
    """An evaluation whose build status and number of trials fit the outcome. Nothing was timed."""
    passed = _TRIALS if outcome is Outcome.CORRECT else 0
    fits: dict[str, Any] = {
        "build": BuildStatus.FAILED if outcome is Outcome.COMPILE_ERROR else BuildStatus.BUILT,
        "tests_passed": passed,
        "tests_total": _TRIALS if outcome in (Outcome.CORRECT, Outcome.INCORRECT) else 0,
    }
    return Evaluation(outcome, **(fits | fields))


def make_timed_evaluation(speedup: float, **fields: Any) -> Evaluation:
    """A correct evaluation whose times fit a speedup: its interval is 10 % wide on each side, its baseline 100 us."""
    timed: dict[str, Any] = {
        "runtime": make_runtime(100.0 / speedup),
        "baseline": make_runtime(100.0),
        "speedup": speedup,
        "speedup_ci": (0.9 * speedup, 1.1 * speedup),
        "eager_speedup": speedup,
    }
    return make_evaluation(Outcome.CORRECT, **(timed | fields))


def make_turn(
    outcome: Outcome = Outcome.CORRECT,
    *,
    source: str | None = _BY_OUTCOME,
    speedup: float | None = None,
    evaluation: Evaluation | None = _BY_OUTCOME,
    **fields: Any,
) -> Turn:
    """A turn with the score 0 and an empty reply.

    Candidate, evaluation and verdict fit the outcome: a `format_error` has neither candidate nor evaluation, a
    `rejected` turn was not run, an `infra_error` has nothing, and `hacked` has the verdict `hack`.

    Args:
        source: of the candidate, of backend `triton`; None: there is no candidate. `extraction` replaces it.
        speedup: of a correct kernel, with `make_timed_evaluation`. None: nothing was timed.
        score: a number is a score without parts.
    """
    if source is _BY_OUTCOME:
        source = None if outcome in _NO_CANDIDATE else SOURCE
    if evaluation is _BY_OUTCOME:
        evaluation = None if outcome in _NOT_RUN else make_evaluation(outcome)
        if speedup is not None and outcome is Outcome.CORRECT:
            evaluation = make_timed_evaluation(speedup)
    candidate = make_candidate(source) if source is not None else None
    hacked = outcome is Outcome.HACKED
    if isinstance(fields.get("score"), int | float):
        fields["score"] = Score(fields["score"])
    plain: dict[str, Any] = {
        "id": SampleId(0, 0, 0, 0),
        "task": make_task(),
        "prompt": Prompt((), ()),
        "reply": make_reply(),
        "extraction": Extraction(candidate, "no_code" if outcome is Outcome.FORMAT_ERROR else ""),
        "findings": (Finding("result_cache", Severity.HACK, "a stored result", checker="judge"),) if hacked else (),
        "verdict": Verdict.HACK if hacked else Verdict.CLEAN,
        "message": "",
        "lost_at": "evaluation" if outcome is Outcome.INFRA_ERROR else "",
    }
    return Turn(outcome=outcome, evaluation=evaluation, **(plain | fields))


def make_request(
    source: str = SOURCE,
    reference: str = REFERENCE,
    backend: str = "triton",
    *,
    settings: EvaluationSettings | Mapping[str, Any] = EvaluationSettings(),  # noqa: B008  (frozen)
    **fields: Any,
) -> EvaluationRequest:
    """A request with hashes that fit its sources, and a fixed seed.

    Args:
        settings: as a mapping, the settings that differ from the defaults.
    """
    if not isinstance(settings, EvaluationSettings):
        settings = EvaluationSettings(**settings)
    plain: dict[str, Any] = {
        "task_id": "task",
        "task_sha256": sha256_text(reference),
        "source_sha256": sha256_text(source),
        "backend_options": {},
        "seed": "1" * 32,
        "api_version": API_VERSION,
    }
    return EvaluationRequest(
        task_source=reference,
        source=source,
        backend=backend,
        settings=settings,
        **(plain | fields),
    )


def turns_of_every_outcome() -> tuple[Turn, ...]:
    """At least one turn of each outcome that rewards and feedback formatters get: all but `infra_error`.

    Correct turns differ in speedup: not measured, slower, faster, far faster than plausible.
    """
    timed = [
        make_timed_evaluation(speedup, own_kernel_share=min(1.0, 0.25 * speedup)) for speedup in (0.5, 1.0, 3.0, 1000.0)
    ]
    values = Mismatch("values", "[0]", max_abs=0.5, mean_abs=0.1, wrong_share=0.25)
    shape = Mismatch("shape", "", expected="(64,)", actual="(32,)")
    suspect = Finding("library_compute", Severity.SUSPECT, "line 6: torch.relu(x)", 6, "source")
    cut = Extraction(None, "truncated", "The reply was cut off.")
    return (
        make_turn(Outcome.FORMAT_ERROR, message="There is no code block."),
        make_turn(Outcome.FORMAT_ERROR, reply=make_reply("```python", 3, stop_reason="length"), extraction=cut),
        make_turn(
            Outcome.REJECTED, findings=(suspect,), verdict=Verdict.SUSPECT, message="Use no library function. line 6"
        ),
        make_turn(Outcome.COMPILE_ERROR, message="SyntaxError: invalid syntax"),
        make_turn(Outcome.RUNTIME_ERROR, message="RuntimeError: an illegal memory access was encountered"),
        make_turn(Outcome.TIMEOUT, message="The limit of 60 s was reached."),
        make_turn(Outcome.OUT_OF_MEMORY, message="A tensor of 80 GiB does not fit."),
        make_turn(Outcome.INCORRECT, evaluation=make_evaluation(Outcome.INCORRECT, mismatch=values, tests_passed=2)),
        make_turn(Outcome.INCORRECT, evaluation=make_evaluation(Outcome.INCORRECT, mismatch=shape)),
        make_turn(Outcome.HACKED, message="The kernel returned a stored result."),
        make_turn(Outcome.CORRECT),
        make_turn(Outcome.CORRECT, findings=(suspect,), verdict=Verdict.SUSPECT, source=SOURCE + "# long\n" * 2000),
        make_turn(
            Outcome.CORRECT,
            extraction=Extraction(
                make_candidate(thinking="hm " * 500), thinking="hm " * 500, summary="A new block size."
            ),
        ),
        *(make_turn(Outcome.CORRECT, evaluation=evaluation) for evaluation in timed),
    )


def generated_turns(count: int = 70, seed: int = 0) -> tuple[Turn, ...]:
    """Turns of every outcome that rewards and feedback formatters get, with random and extreme values.

    Sources, thinking, messages and replies are empty, short or very long; speedups go from 1e-6 to 1e6; any share of
    the trials passed. Equal arguments give equal turns.
    """
    draw = random.Random(seed)
    outcomes = [outcome for outcome in Outcome if outcome is not Outcome.INFRA_ERROR]
    return tuple(_generated(draw, outcomes[number % len(outcomes)]) for number in range(count))


def _generated(draw: random.Random, outcome: Outcome) -> Turn:
    suspect = outcome not in (Outcome.FORMAT_ERROR, Outcome.HACKED) and draw.random() < 0.2
    fields: dict[str, Any] = {
        "task": make_task(level=draw.choice([None, 1, 2, 3, 4])),
        "reply": make_reply(_text(draw), draw.choice([0, 1, 500, 8000]), stop_reason=draw.choice(["stop", "length"])),
        "message": _text(draw),
        "seconds": {"sample": draw.random(), "evaluate": 10 * draw.random()},
    }
    if suspect:
        finding = Finding("library_compute", Severity.SUSPECT, _text(draw), draw.choice([None, 1, 99]), "source")
        fields |= {"findings": (finding,), "verdict": Verdict.SUSPECT}
    if outcome not in _NO_CANDIDATE:
        source = draw.choice([SOURCE, "", SOURCE + _text(draw), "# \u00fc\u202e\n" + SOURCE])
        thinking = _text(draw)
        fields["extraction"] = Extraction(make_candidate(source, thinking=thinking), thinking=thinking)
    if outcome not in _NOT_RUN:
        fields["evaluation"] = _generated_evaluation(draw, outcome)
    return make_turn(outcome, **fields)


def _generated_evaluation(draw: random.Random, outcome: Outcome) -> Evaluation:
    fields: dict[str, Any] = {"message": _text(draw), "own_kernel_share": draw.choice([None, 0.0, draw.random(), 1.0])}
    if outcome is Outcome.INCORRECT:
        kind: Any = draw.choice(["values", "shape", "dtype", "non_finite", "inputs"])
        fields["tests_passed"] = draw.randrange(_TRIALS)
        fields["mismatch"] = Mismatch(kind, "[0]", "a", "b", 10 ** draw.uniform(-9, 9), 1e-3, draw.random())
    elif outcome is Outcome.CORRECT and draw.random() < 0.8:
        speedup = draw.choice([10 ** draw.uniform(-6, 6), draw.uniform(0.5, 2.0), 1.0])
        fields |= {
            "eager_speedup": draw.choice([None, speedup, 2 * speedup]),
            "kernels": (CompiledKernel("kernel", 255, spill_stores_bytes=8),),
            "facts": _facts(speedup),
        }
        return make_timed_evaluation(speedup, **fields)
    return make_evaluation(outcome, **fields)


def _facts(speedup: float) -> EvaluationFacts:
    """Facts about a task that moves 100 MB at 1,000 GB/s in 100 us, the time of its baseline."""
    return EvaluationFacts(
        device_kernels=(DeviceKernel("kernel", "own", 1), DeviceKernel("at::native::reduce_kernel", "library", 2)),
        library_kernels=("at::native::reduce_kernel",),
        library_kernel_share=0.5,
        timing=TimingFacts("replay", rounds=20, calls_per_window=8),
        roofline=Roofline(
            compulsory_bytes=1e8,
            flops=0.0,
            bandwidth_gb_s=1000.0,
            tflops=50.0,
            floor_us=100.0,
            achieved_bandwidth_gb_s=1000.0 * speedup,
            bandwidth_share=speedup,
            achieved_tflops=0.0,
            flop_share=0.0,
        ),
    )


def _text(draw: random.Random) -> str:
    line = draw.choice(["", "RuntimeError: an illegal memory access", "\x1b[31m\u202ered\0", "line\n" * 20])
    return line * draw.choice([1, 1, 1, 300])
