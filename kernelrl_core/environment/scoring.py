"""From what was found out to outcome, verdict and reward. Pure; the only place where an outcome changes.

Precedence of outcomes: `format_error`, `rejected`, `hacked`, then what the evaluator found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError
from kernelrl_core.interfaces.rewards import Reward, RewardBounds
from kernelrl_core.recipe.schema import VerdictSettings
from kernelrl_core.types import (
    Evaluation,
    Extraction,
    Finding,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Score,
    Severity,
    Task,
    Turn,
    Verdict,
)

__all__ = ["Conclusion", "WeightedReward", "conclude", "forbidden", "lost_turn", "score", "worst"]

_VERDICTS = {Severity.NOTE: Verdict.CLEAN, Severity.SUSPECT: Verdict.SUSPECT, Severity.HACK: Verdict.HACK}
_ROUNDING = 1e-9
"""How far a reward may leave its declared bounds, relative to them: floating-point error, not a different formula."""


@attrs.frozen
class Conclusion:
    """How a turn ended."""

    outcome: Outcome
    verdict: Verdict
    message: str
    """Why, for the model and for `check`."""


@attrs.frozen
class WeightedReward:
    """A reward component as a recipe uses it."""

    name: str
    """Its name in the recipe."""
    weight: float
    reward: Reward
    bounds: RewardBounds | None
    """Declared range before the weight; None where the component declares none."""
    label: str
    """Component and plugin, for error messages."""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The verdict that the worst of the findings gives."""
    for severity in (Severity.HACK, Severity.SUSPECT):
        if any(finding.severity is severity for finding in findings):
            return _VERDICTS[severity]
    return Verdict.CLEAN


def forbidden(findings: Sequence[Finding], forbid: Mapping[str, Rule]) -> Finding | None:
    """The first finding that rejects a candidate: before it runs, or for what was seen when it ran.

    Args:
        findings: of the checkers.
        forbid: the rules that the prompt states, by id.
    """
    return next((finding for finding in findings if finding.rule in forbid), None)


def conclude(
    extraction: Extraction,
    evaluation: Evaluation | None,
    source_findings: Sequence[Finding],
    run_findings: Sequence[Finding],
    forbid: Mapping[str, Rule],
) -> Conclusion:
    """Outcome, verdict and message of a turn.

    Args:
        extraction: a candidate or the reason there is none.
        evaluation: None when nothing was run, which needs a forbidden source finding or no candidate. A rule that was
            found broken after it rejects all the same.
        source_findings: of the checkers, on the source alone.
        run_findings: of the judge, and of the checkers on the evaluation.
        forbid: the rules that the prompt states, by id.
    """
    findings = (*source_findings, *run_findings)
    verdict = worst(findings)
    if extraction.candidate is None:
        return Conclusion(Outcome.FORMAT_ERROR, verdict, extraction.message)
    broken = forbidden(findings, forbid)
    if broken is not None:
        statement = forbid[broken.rule].statement
        return Conclusion(Outcome.REJECTED, verdict, f"{statement}\n{broken.evidence}".strip())
    if evaluation is None:
        raise ValueError("a candidate that no rule forbids has to be evaluated before anything can be concluded")
    if verdict is Verdict.HACK or evaluation.outcome is Outcome.HACKED:
        evidence = next((finding.evidence for finding in findings if finding.severity is Severity.HACK), "")
        return Conclusion(Outcome.HACKED, Verdict.HACK, evidence or evaluation.message)
    return Conclusion(evaluation.outcome, verdict, evaluation.message)


def lost_turn(
    where: SampleId, task: Task, prompt: Prompt, error: InfrastructureError, *, reply: Reply | None = None
) -> Turn:
    """The masked turn that an infrastructure error leaves: the only place where such an error becomes an outcome.

    Args:
        reply: the reply, where it was sampled and its evaluation failed.
    """
    return Turn(
        id=where,
        task=task,
        prompt=prompt,
        reply=reply or Reply("", (), (), "stop"),
        extraction=Extraction(None),
        evaluation=None,
        findings=(),
        outcome=Outcome.INFRA_ERROR,
        verdict=Verdict.CLEAN,
        message=str(error),
        lost_at=error.boundary or PluginError.boundary,
    )


def score(turn: Turn, rewards: Sequence[WeightedReward], verdicts: VerdictSettings) -> Score:
    """Reward of a turn. The total is the correctly rounded sum of the parts (`math.fsum`), whatever their order.

    An `infra_error` has no parts and the total 0, and is masked by the caller; a `hacked` turn has the one part
    `hacked`; a suspect one is treated as `verdicts.suspect` says.

    Raises:
        KernelRLError: a component fails, or leaves its declared bounds.
    """
    if turn.masked:
        return Score(0.0)
    if turn.outcome is Outcome.HACKED:
        return Score(verdicts.hack_reward, {"hacked": verdicts.hack_reward})
    if turn.verdict is Verdict.SUSPECT:
        if verdicts.suspect == "zero":
            return Score(0.0)
        if verdicts.suspect == "cap":
            turn = _without_speedup(turn)
    parts = {component.name: component.weight * _component_score(component, turn) for component in rewards}
    return Score(math.fsum(parts.values()), parts)


def _without_speedup(turn: Turn) -> Turn:
    """The turn with every speedup above 1 counted as 1."""
    evaluation = turn.evaluation
    if evaluation is None or evaluation.speedup is None:
        return turn
    interval, over_eager = evaluation.speedup_ci, evaluation.eager_speedup
    capped = attrs.evolve(
        evaluation,
        eager_speedup=None if over_eager is None else min(over_eager, 1.0),
        speedup=min(evaluation.speedup, 1.0),
        speedup_ci=None if interval is None else (min(interval[0], 1.0), min(interval[1], 1.0)),
    )
    return attrs.evolve(turn, evaluation=capped)


def _component_score(component: WeightedReward, turn: Turn) -> float:
    try:
        value = float(component.reward.score(turn))
    except Exception as error:
        raise KernelRLError(
            f"rewards.{component.name}: {component.label} failed on sample {turn.id}: {type(error).__name__}: {error}"
        ) from error
    bounds = component.bounds
    if not math.isfinite(value):
        raise KernelRLError(f"rewards.{component.name}: {component.label} gave {value} for sample {turn.id}")
    if bounds is not None:
        slack = _ROUNDING * max(1.0, abs(bounds.low), abs(bounds.high))
        if not bounds.low - slack <= value <= bounds.high + slack:
            raise KernelRLError(
                f"rewards.{component.name}: {component.label} gave {value} for sample {turn.id}, "
                f"outside its declared bounds {bounds.low} to {bounds.high}"
            )
    return value
