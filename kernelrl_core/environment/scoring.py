"""Outcome, verdict and score of a turn from extraction, findings and evaluation, and the turn. Pure functions.

No other module changes an outcome. Precedence: `format_error`, `rejected`, `hacked`, then that of the evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from types import MappingProxyType

import attrs

from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError
from kernelrl_core.interfaces.rewards import Reward, RewardBounds
from kernelrl_core.plugins.boundary import place_of, plugin_test
from kernelrl_core.plugins.load_errors import error_text
from kernelrl_core.plugins.output import output_to_stderr
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import RewardUse, VerdictSettings
from kernelrl_core.types import (
    Evaluation,
    ExcludedExample,
    Extraction,
    Finding,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Score,
    Severity,
    ShownExample,
    Task,
    Turn,
    Verdict,
)

__all__ = [
    "Conclusion",
    "Judgement",
    "PromptExamples",
    "WeightedReward",
    "conclude",
    "forbidden",
    "judged_turn",
    "lost_turn",
    "score",
    "weighted_rewards",
    "worst",
]

_VERDICTS = {Severity.NOTE: Verdict.CLEAN, Severity.SUSPECT: Verdict.SUSPECT, Severity.HACK: Verdict.HACK}
_ROUNDING = 1e-9
"""Relative tolerance for rounding errors when a reward component's value is compared with its declared bounds."""


@attrs.frozen
class Conclusion:
    """Outcome, verdict and message of a turn."""

    outcome: Outcome
    verdict: Verdict
    message: str
    """Reason for the outcome, for the feedback and for `kernelrl check`."""


@attrs.frozen
class PromptExamples:
    """The retrieved examples of a prompt."""

    shown: tuple[ShownExample, ...] = ()
    """Those in the prompt, best first."""
    excluded: tuple[ExcludedExample, ...] = ()
    """Those that the prompt does not show, with the reasons."""


@attrs.frozen
class Judgement:
    """Everything that checkers and evaluator say about the candidate of a reply."""

    extraction: Extraction
    """The candidate with its source facts, or the reason why there is none."""
    evaluation: Evaluation | None
    """None without a candidate, or if a stated rule rejects it."""
    findings: tuple[Finding, ...]
    """Findings on the source, of the judge, and on the evaluation."""
    conclusion: Conclusion
    """Outcome, verdict and message that follow from them."""
    seconds: Mapping[str, float]
    """Wall time of the phases `check` and `evaluate`, as far as they took place."""


@attrs.frozen
class WeightedReward:
    """A reward component with its weight in a recipe."""

    name: str
    """Name in the recipe."""
    weight: float
    reward: Reward
    bounds: RewardBounds | None
    """Declared range of the unweighted value; None: not declared."""
    label: str
    """Component and plugin in error messages."""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The verdict of the most severe finding; `clean` without findings."""
    for severity in (Severity.HACK, Severity.SUSPECT):
        if any(finding.severity is severity for finding in findings):
            return _VERDICTS[severity]
    return Verdict.CLEAN


def forbidden(findings: Sequence[Finding], forbid: Mapping[str, Rule]) -> Finding | None:
    """The first finding of a stated rule, which rejects the candidate; None if there is none.

    Args:
        findings: findings from the source or from the evaluation.
        forbid: stated rules by id.
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
        extraction: the candidate, or the reason why there is none.
        evaluation: None only without a candidate, or if a source finding rejects it.
        source_findings: checkers' findings on the source.
        run_findings: findings of the judge, and checkers' findings on the evaluation. They reject, too.
        forbid: stated rules by id.

    Raises:
        ValueError: a candidate that no rule rejects has no evaluation.
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
        raise ValueError("a candidate that no stated rule rejects needs an evaluation")
    if verdict is Verdict.HACK or evaluation.outcome is Outcome.HACKED:
        evidence = next((finding.evidence for finding in findings if finding.severity is Severity.HACK), "")
        return Conclusion(Outcome.HACKED, Verdict.HACK, evidence or evaluation.message)
    return Conclusion(evaluation.outcome, verdict, evaluation.message)


def judged_turn(
    where: SampleId,
    task: Task,
    prompt: Prompt,
    reply: Reply,
    judgement: Judgement,
    *,
    seconds: Mapping[str, float] = MappingProxyType({}),
    staleness: int = 0,
    examples: PromptExamples = PromptExamples(),  # frozen
) -> Turn:
    """The turn of a judged reply, without score, feedback and verification.

    Args:
        seconds: durations of the phases before the judgement.
    """
    return Turn(
        id=where,
        task=task,
        prompt=prompt,
        reply=reply,
        extraction=judgement.extraction,
        evaluation=judgement.evaluation,
        findings=judgement.findings,
        outcome=judgement.conclusion.outcome,
        verdict=judgement.conclusion.verdict,
        message=judgement.conclusion.message,
        seconds={**seconds, **judgement.seconds},
        staleness=staleness,
        examples=examples.shown,
        excluded_examples=examples.excluded,
    )


def lost_turn(
    where: SampleId,
    task: Task,
    prompt: Prompt,
    error: InfrastructureError,
    *,
    reply: Reply | None = None,
    seconds: Mapping[str, float] = MappingProxyType({}),
    examples: PromptExamples = PromptExamples(),  # frozen
) -> Turn:
    """A masked turn with outcome `infra_error`. No other function converts an infrastructure error to an outcome.

    Args:
        reply: the reply, if sampling succeeded and the evaluation failed.
        seconds: durations of the phases before the error.
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
        seconds=dict(seconds),
        lost_at=error.boundary or PluginError.boundary,
        examples=examples.shown,
        excluded_examples=examples.excluded,
    )


def weighted_rewards(rewards: Mapping[str, RewardUse], registry: Registry) -> list[WeightedReward]:
    """The reward components that a recipe selects."""
    return [
        WeightedReward(
            name,
            use.weight,
            registry.make("rewards", use),
            use.options.bounds(),
            f"reward {use.use!r} of plugin {registry.plugin_of('rewards', use.use).name}",
        )
        for name, use in rewards.items()
    ]


def score(turn: Turn, rewards: Sequence[WeightedReward], verdicts: VerdictSettings) -> Score:
    """Score of a turn: sum over the reward components of weight times value, computed with `math.fsum`. A weight of the
    task replaces that of the recipe.

    `infra_error`: total 0 without parts. `hacked`: total `verdicts.hack_reward`, as the single part `hacked`. Verdict
    `suspect`: with `verdicts.suspect` `zero`, total 0 without parts; with `cap`, speedups count as at most 1.

    Raises:
        KernelRLError: a component raised an exception, or returned a value that is not finite or outside its bounds.
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
    weights = turn.task.settings.weights
    parts = {
        component.name: weights.get(component.name, component.weight) * _component_score(component, turn)
        for component in rewards
    }
    return Score(math.fsum(parts.values()), parts)


def _without_speedup(turn: Turn) -> Turn:
    """The turn with all speedups limited to 1."""
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
    label, fix = f"rewards.{component.name}: {component.label}", plugin_test(component.label)
    try:
        with output_to_stderr():
            given: object = component.reward.score(turn)
    except (Exception, SystemExit) as error:
        message = f"{label} failed on sample {turn.id}: {error_text(error)}{place_of(error)}"
        raise KernelRLError(message, fix=fix, see="plugin") from error
    bounds = component.bounds
    if not isinstance(given, Real) or not math.isfinite(given):
        message = f"{label} gave {given!r} for sample {turn.id}, not a finite number"
        raise KernelRLError(message, fix=fix, see="plugin")
    value = float(given)
    if bounds is not None:
        slack = _ROUNDING * max(1.0, abs(bounds.low), abs(bounds.high))
        if not bounds.low - slack <= value <= bounds.high + slack:
            message = f"{label} gave {value} for sample {turn.id}, outside its declared bounds"
            raise KernelRLError(f"{message} {bounds.low} to {bounds.high}", fix=fix, see="plugin")
    return value
