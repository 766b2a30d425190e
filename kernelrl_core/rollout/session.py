"""A session: started policy, environment and sampler, opened and closed together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.environment.demonstrations import Demonstrations
from kernelrl_core.environment.environment import Environment
from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.policies import Policy, PolicyContext, TrainablePolicy
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts.composer import MINIMUM_REPLY_TOKENS
from kernelrl_core.prompts.history import require_kept_thinking
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.sampler import Sampler
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.runs.checkpoints import begin_from, load_checkpoint
from kernelrl_core.storage import cache_directory
from kernelrl_core.types.seeds import derived_seed

__all__ = ["Session", "open_session", "require_learning"]

_log = logging.getLogger(__name__)


@attrs.frozen
class Session:
    """A started policy and its environment."""

    recipe: Recipe
    environment: Environment
    policy: Policy
    timeline: Timeline = attrs.field(factory=Timeline, init=False)
    sampler: Sampler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        slots = SamplingSlots(self.recipe.sampling.concurrency, self.recipe.episode.turns, self.timeline)
        object.__setattr__(self, "sampler", Sampler(self.policy, self.policy_label, slots, self.timeline))

    @property
    def policy_label(self) -> str:
        """Name of the policy in messages."""
        return f"policy {self.recipe.policy.use!r}"


@asynccontextmanager
async def open_session(
    recipe: Recipe,
    registry: Registry,
    *,
    secret: bytes,
    run_dir: Path | None,
    say: Callable[[str], None],
    origin: tuple[Mapping[str, Any], Path] | None = None,
    checkpoint: tuple[Path, Mapping[str, Any]] | None = None,
) -> AsyncIterator[Session]:
    """Start the evaluator, then the policy; close both at the end.

    Args:
        secret: key of the hidden input seeds.
        run_dir: directory of the run; None: the policy is evaluated, not trained.
        say: prints a line for the user.
        origin: state and files of another run's checkpoint, whose weights replace the initial ones.
        checkpoint: directory of checkpoints, and the row of the one to load; see `load_checkpoint`.

    Raises:
        UsageError, MissingPrerequisite: a component of the recipe cannot be used.
        KernelRLError: the evaluator or the policy does not start.
    """
    cache = cache_directory()
    policy: Policy = registry.make("policies", recipe.policy)
    environment = Environment.from_recipe(recipe, registry=registry, secret=secret, cache_dir=cache)
    session = Session(recipe, environment, policy)
    try:
        _require_warm_start(recipe, policy)
        # First: an evaluator that cannot work must not cost the start of a policy, let alone a sample.
        await environment.start()
        demonstrations = Demonstrations(environment)
        context = PolicyContext(
            seed=derived_seed(recipe.seed, "policy"),
            cache_dir=cache,
            run_dir=run_dir,
            demonstrations=demonstrations.examples,
            # Composing the prompts may take many searches, so not for a policy that never uses them.
            demonstrations_key=await demonstrations.key() if policy.capabilities.warm_start else "",
            say=say,
            # Only a run has a directory and is trained; an evaluation is not.
            loss=recipe.train.loss if run_dir is not None else "",
            reference=recipe.train.kl > 0 and run_dir is not None,
            weights_follow=origin is not None or checkpoint is not None,
            reply_tokens=min(MINIMUM_REPLY_TOKENS, recipe.sampling.max_tokens),
        )
        with plugin_boundary(session.policy_label, "start"):
            await policy.start(context)
        _require_warm_start(recipe, policy)  # `start` may remove capabilities; `require_learning` checks the others
        if checkpoint is not None:
            await load_checkpoint(policy, *checkpoint, component=session.policy_label)
        elif origin is not None:
            await begin_from(policy, *origin, component=session.policy_label)
        with plugin_boundary(session.policy_label, "render"):
            require_kept_thinking(recipe, policy.render)
        yield session
    finally:
        try:
            await policy.aclose()
        except Exception:
            _log.exception("%s failed in aclose", session.policy_label)
        await environment.aclose()


def _require_warm_start(recipe: Recipe, policy: Policy) -> None:
    if recipe.demonstrations.file is not None and not policy.capabilities.warm_start:
        raise UsageError(
            f"demonstrations.file: policy {recipe.policy.use!r} does not warm-start with these options",
            fix="set policy.warm_start if the policy has this option, or demonstrations.file=null",
            see="warm-start",
        )


def require_learning(recipe: Recipe, policy: Policy) -> TrainablePolicy:
    """The policy, checked for all capabilities that the recipe's training needs.

    Raises:
        UsageError: the policy cannot learn or lacks the loss, the ratio or the log-probabilities of the recipe, or
            `train.group_size` is below `train.min_group_size`.
    """
    losses = policy.capabilities.losses
    if not losses or not isinstance(policy, TrainablePolicy):
        raise UsageError(
            f"policy {recipe.policy.use!r} cannot learn",
            fix="run kernelrl eval RECIPE, or choose another policy",
            see="policy-options",
        )
    if recipe.train.loss not in losses:
        raise UsageError(
            f"train.loss: policy {recipe.policy.use!r} has no loss {recipe.train.loss!r}; "
            f"it has {', '.join(sorted(losses))}"
        )
    if recipe.train.ratio_level not in policy.capabilities.ratios:
        raise UsageError(
            f"train.ratio: policy {recipe.policy.use!r} supports only "
            f"{' or '.join(sorted(policy.capabilities.ratios))}, not {recipe.train.ratio}",
            fix="remove train.ratio, or choose another policy",
            see="policy-options",
        )
    for key, wanted, offered in (
        ("train.mismatch", recipe.train.mismatch is not None, policy.capabilities.logprobs),
        ("train.kl", recipe.train.kl > 0, policy.capabilities.reference),
    ):
        if wanted and not offered:
            whose = "current weights" if key == "train.mismatch" else "reference policy"
            raise UsageError(
                f"{key}: policy {recipe.policy.use!r} gives no log-probabilities of its {whose}",
                fix=f"remove {key}, or choose another policy",
                see="policy-options",
            )
    if recipe.train.group_size < recipe.train.min_group_size:
        raise UsageError(
            f"train.group_size {recipe.train.group_size} is below train.min_group_size {recipe.train.min_group_size}, "
            "so every group would be masked"
        )
    return policy
