"""The result of a checked kernel in words, as `kernelrl check` prints it."""

from __future__ import annotations

from kernelrl_core.environment.checked_kernels import why_no_speedup
from kernelrl_core.environment.one_kernel import find_backends
from kernelrl_core.errors import more
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.types import Evaluation, EvaluationSettings, Turn, Verdict

__all__ = ["backend_note", "headline", "ratio_text", "turn_lines", "was_only_built"]

_MAX_LEVEL = 4
"""Highest `Isolation.level`."""
_BUSY_SHARE = 0.1
"""Share of the time of timed calls that other programs take, above which the result has a warning."""
_VERDICTS = {"clean": "", "suspect": "suspect", "hack": "hack found"}
"""Verdict -> its words in the first line."""


def backend_note(turn: Turn, spec: EvaluationSpec, registry: Registry) -> str:
    """The line that names another installed backend, which finds kernels in the source where the selected one finds
    none; else empty."""
    if turn.correct or turn.candidate is None or turn.candidate.facts.kernels:
        return ""
    found, selected = find_backends(turn.candidate.source, registry), spec.backend.use
    if not found or selected in found:
        return ""
    return f"note: evaluated with backend {selected}; for this kernel, try -b {found[0]}"


def headline(turn: Turn) -> str:
    """Outcome and verdict in words. A suspect comes first: its kernel may be wrong where no trial looked."""
    if turn.correct and turn.verdict is Verdict.SUSPECT:
        return "suspect; correct in the trials"
    outcome = "not executed" if was_only_built(turn) else turn.outcome.value
    return "; ".join(filter(None, (outcome, _VERDICTS[turn.verdict.value])))


def was_only_built(turn: Turn) -> bool:
    """Whether the candidate was built and not executed, because this machine cannot execute it."""
    return turn.evaluation is not None and bool(turn.evaluation.checked)


def _speed(evaluation: Evaluation, speedup: float) -> str:
    text = ratio_text(speedup)
    if evaluation.speedup_ci is not None:
        low, high = evaluation.speedup_ci
        text += f" ({ratio_text(low)} to {ratio_text(high)})"
    if evaluation.runtime is not None and evaluation.baseline is not None:
        text += f": {evaluation.runtime.median_us:.1f} us against {evaluation.baseline.median_us:.1f} us"
    return text


def ratio_text(value: float) -> str:
    """A speedup with two digits at least."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _first_line(evaluation: Evaluation) -> str:
    return evaluation.message.partition("\n")[0]


def _dtypes(evaluation: Evaluation) -> str:
    """Dtypes of the task and their cast; empty if all floating-point ones are float32 without a cast."""
    facts = evaluation.facts
    shown = facts.dtypes if facts.dtypes is not None and (facts.cast or not facts.dtypes.are_usual) else None
    cast = f"cast by evaluation.precision to {facts.cast}" if facts.cast else ""
    return "; ".join(str(part) for part in (shown, cast) if part)


def turn_lines(
    turn: Turn,
    why_untimed: str = "",
    *,
    cached: bool = False,
    settings: EvaluationSettings | None = None,
) -> list[str]:
    """Outcome, verdict, speedup, findings and message of a turn in words."""
    evaluation = turn.evaluation
    lines = [f"{headline(turn)}  {turn.task.id}"]
    findings = [
        f"finding   {found.rule} ({', '.join(filter(None, [found.severity.value, found.checker]))}): {found.evidence}"
        for found in turn.findings
    ]
    shown = {found.evidence for found in turn.findings}
    message = [line for line in turn.message.splitlines() if line not in shown]
    if any(line.startswith("fix: ") for line in message):
        message.append(more("infrastructure"))
    if evaluation is None:
        return [*lines, *findings, *message]
    isolation = evaluation.isolation
    missing = ", ".join(isolation.missing)
    level = f"level {isolation.level}/{_MAX_LEVEL}"
    sandbox = [f"sandbox   {level}; no {missing} (see 'kernelrl doctor')"] if missing else []
    if was_only_built(turn):
        backend = turn.candidate.backend if turn.candidate else ""
        fix = [f"fix: use a machine with a GPU for backend {backend}", more("gpu")] if backend else []
        return [*lines, *message, *fix, *sandbox, *findings]
    if evaluation.compiled:
        lines.append(f"trials    {evaluation.tests_passed} of {evaluation.tests_total} passed")
    if dtypes := _dtypes(evaluation):
        lines.append(f"dtypes    {dtypes}")
    if turn.speedup is not None:
        lines.append(f"speedup   {_speed(evaluation, turn.speedup)}")
        if (timing := evaluation.facts.timing) is not None and timing.waiting_share >= _BUSY_SHARE:
            percent = f"{100 * timing.waiting_share:.0f} %"
            lines.append(f"load      other programs had the processors {percent} of the time, which does not count")
    elif turn.correct:
        lines.append(f"speedup   not measured: {why_no_speedup(turn, why_untimed)}")
    if evaluation.outcome is not turn.outcome:
        lines.append(
            f"ended     {evaluation.outcome.value}{f': {first}' if (first := _first_line(evaluation)) else ''}"
        )
    if evaluation.outcome.value == "timeout" and settings is not None:
        limits = f"evaluation.timeout_s={settings.timeout_s:g}, evaluation.build_timeout_s={settings.build_timeout_s:g}"
        slow = "; an interpreter on the CPU is slow" if evaluation.provenance.get("mode") == "interpreter" else ""
        lines.append(f"limits    {limits}{slow}")
    if cached:
        lines.append("cached    this is the result of an earlier check with the same seed")
    return [*lines, *sandbox, *findings, *message]
