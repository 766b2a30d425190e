"""Rules about training: groups, loss, optimizer, order of the steps, budget."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.errors import KernelRLError, suggestion
from kernelrl_core.interfaces.policies import PolicyCapabilities
from kernelrl_core.monitoring.costs import known_prices
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.recipe.schema import CostSettings, CurriculumSettings, EvalSettings, TrainSettings
from kernelrl_core.types import EvaluationSettings

__all__ = [
    "best_metric",
    "budget",
    "coverage",
    "declared_capabilities",
    "group_comparison",
    "group_size",
    "length",
    "mismatch_bounds",
    "missing_capabilities",
    "optimizer",
    "refill",
    "resume_and_staleness",
]


def coverage(train: TrainSettings, evaluation: EvaluationSettings) -> Iterator[Contradiction]:
    """A filter by the coverage of kernels that are not timed."""
    if train.coverage_rejection is not None and not evaluation.timing:
        message = "the kernels of a call are not timed, so no training sample would be filtered"
        yield Contradiction(
            ("train", "coverage_rejection"), message, "set evaluation.timing to true, or set it to null"
        )


def length(train: TrainSettings) -> Iterator[Contradiction]:
    """Two lengths of the run."""
    if train.steps is not None and train.epochs is not None:
        yield Contradiction(("train", "epochs"), "train.steps is set, too", "set one of them to null")


def group_size(train: TrainSettings) -> Iterator[Contradiction]:
    """Groups that are smaller than the smallest group that is trained on."""
    size = train.group_size
    if train.min_group_size > size:
        message = f"{train.min_group_size} is more than train.group_size, {size}: every group would be masked"
        yield Contradiction(("train", "min_group_size"), message)


def group_comparison(train: TrainSettings, advantage: Use, registry: Registry) -> Iterator[Contradiction]:
    """An advantage estimator that compares the episodes of a group with one episode."""
    # Every estimator of the core compares episodes; one of a plugin may not.
    if train.group_size < 2 and registry.plugin_of("advantages", advantage.use).name == "core":
        message = f"advantage {advantage.use!r} compares the episodes of a group, but the group has only one"
        yield Contradiction(("train", "group_size"), message, "set it to 2 or more")


def declared_capabilities(train: TrainSettings, policy: Use) -> Iterator[Contradiction]:
    """Settings of training that the policy does not declare to support with its options."""
    capabilities = policy.options.capabilities()
    if capabilities.losses:  # a policy that cannot be trained can be evaluated; `run` refuses it
        yield from missing_capabilities(train, policy, capabilities)


def missing_capabilities(
    train: TrainSettings, policy: Use, capabilities: PolicyCapabilities
) -> Iterator[Contradiction]:
    """Settings of training that a policy with these capabilities does not support.

    Args:
        capabilities: those that the options declare, or those of the started policy.
    """
    if train.loss not in capabilities.losses:
        message = f"policy {policy.use!r} has no loss {train.loss!r}"
        yield Contradiction(("train", "loss"), message, suggestion(train.loss, capabilities.losses))
    if train.kl and not capabilities.reference:
        message = f"policy {policy.use!r} gives no log-probabilities of its reference policy, which a penalty needs"
        yield Contradiction(("train", "kl"), message, "set it to 0, or choose another policy")
    if train.mismatch is not None and not capabilities.logprobs:
        message = f"policy {policy.use!r} gives no log-probabilities of its current weights to compare with"
        yield Contradiction(("train", "mismatch"), message, "set it to null, or choose another policy")
    if train.importance_cap is not None and not capabilities.logprobs:
        message = f"policy {policy.use!r} gives no log-probabilities of its current weights, which the weights need"
        yield Contradiction(("train", "importance_cap"), message, "set it to null, or choose another policy")
    if train.logprobs_at == "sampling" and not capabilities.tempered:
        message = f"policy {policy.use!r} gives log-probabilities at temperature 1 only"
        yield Contradiction(("train", "logprobs_at"), message, "set it to 1, or choose another policy")
    if train.ratio_level not in capabilities.ratios:
        offered = " or ".join(sorted(capabilities.ratios))
        message = f"policy {policy.use!r} with these options supports only ratio {offered}"
        yield Contradiction(("train", "ratio"), message, "remove it, or choose another policy")


def mismatch_bounds(train: TrainSettings, policy: Use) -> Iterator[Contradiction]:
    """A filter that rejects every sample."""
    mismatch = train.mismatch
    if mismatch is None or not policy.options.capabilities().losses:
        return
    if mismatch.sequence_low > mismatch.sequence_high:
        message = f"no ratio is between {mismatch.sequence_low:g} and {mismatch.sequence_high:g}: all would be filtered"
        yield Contradiction(("train", "mismatch", "sequence_low"), message, "set it below sequence_high")


def optimizer(train: TrainSettings) -> Iterator[Contradiction]:
    """Factors under which the optimizer makes no progress."""
    for key in ("beta1", "beta2"):
        if getattr(train, key) >= 1:
            yield Contradiction(("train", key), "must be below 1, else the optimizer makes no progress")
    if train.loss == "ppo" and train.clip_low >= 1:
        yield Contradiction(("train", "clip_low"), "must be below 1, else the ratio is never clipped from below")


def resume_and_staleness(
    train: TrainSettings,
    curriculum: CurriculumSettings | None,
    policy: Use,
) -> Iterator[Contradiction]:
    """An order of work that an exact resume, a curriculum or the loss does not allow."""
    capabilities = policy.options.capabilities()
    if train.exact_resume and capabilities.losses and not capabilities.deterministic:
        message = f"replies of policy {policy.use!r} with these options cannot be repeated exactly"
        yield Contradiction(("train", "exact_resume"), message, "remove it, or set it to false")
    exact = capabilities.deterministic if train.exact_resume is None else train.exact_resume
    loose = (("order", train.order != "canonical"), ("staleness", train.staleness > 0))
    for key, set_so in loose:
        if set_so and exact:
            message = (
                f"with {getattr(train, key)}, timing affects the updates, so a resumed run differs from an "
                "uninterrupted one"
            )
            yield Contradiction(("train", key), message, "set train.exact_resume: false to accept that, or remove it")
    if train.staleness and curriculum is not None:
        message = "a curriculum selects the tasks of a step from results of the step before"
        yield Contradiction(("train", "staleness"), message, "set it to 0, or remove curriculum")
    for key in ("mismatch", "importance_cap"):
        if train.staleness and getattr(train, key) is not None:
            message = f"train.{key} compares with the current weights, but stale samples come from earlier weights"
            yield Contradiction(("train", "staleness"), message, f"set it to 0, or set train.{key} to null")
    if train.staleness and train.refill:
        message = "train.refill samples the groups of a step until its update, so no step can be sampled ahead"
        yield Contradiction(("train", "staleness"), message, "set it to 0, or set train.refill to 0")
    if train.staleness >= 3 and train.loss == "importance_sampling":
        message = f"the ratios of importance_sampling are not clipped, and diverge with {train.staleness} stale updates"
        yield Contradiction(("train", "staleness"), message, "set it to 2 or below, or train.loss to ppo or cispo")


def refill(train: TrainSettings) -> Iterator[Contradiction]:
    """Groups in place of uniform ones that are trained on."""
    if train.refill and not train.drop_uniform_groups:
        message = "no group is replaced, because uniform groups are trained on (train.drop_uniform_groups)"
        yield Contradiction(("train", "refill"), message, "set it to 0, or train.drop_uniform_groups to true")


def best_metric(train: TrainSettings, eval: EvalSettings) -> Iterator[Contradiction]:  # noqa: A002
    """A metric of the best checkpoint that no evaluation of the run measures."""
    metric = train.keep_best
    if metric is None:
        return
    names = {f"eval/{name}" for name in eval.result_names()}
    if metric not in names:
        message = f"{metric!r} is no result of the held-out evaluation"
        yield Contradiction(("train", "keep_best"), message, suggestion(metric, names))
    elif not eval.every and not eval.at_end:
        message = "the run makes no held-out evaluation after a step (eval.every, eval.at_end)"
        yield Contradiction(("train", "keep_best"), message, "set eval.every, or set it to null")


def budget(cost: CostSettings, policy: Use, evaluator: Use) -> Iterator[Contradiction]:
    """A budget without prices, and an unusable price table."""
    try:
        prices = known_prices(cost, policy, evaluator)
    except KernelRLError as error:
        yield Contradiction(("cost", "table"), error.message, error.fix)
        return
    if cost.budget_usd is None:
        return
    needed = ("prompt", "reply", "train") if policy.options.capabilities().losses else ("prompt", "reply")
    unknown = [f"cost.prices.{key}" for key in needed if getattr(prices, key) is None]
    if unknown:
        message = f"policy {policy.use!r} declares no prices, so the budget cannot be enforced"
        yield Contradiction(("cost", "budget_usd"), message, f"set {', '.join(unknown)}, in USD per million tokens")
