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
from kernelrl_core.recipe.rules.training import missing_capabilities
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.sampler import Sampler
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.runs.checkpoints import begin_from, load_checkpoint
from kernelrl_core.storage import cache_directory
from kernelrl_core.types.seeds import derived_seed

__all__ = ["Session", "open_session", "require_learning", "require_trainable"]

_log = logging.getLogger(__name__)


@attrs.frozen
class Session:
    """A started policy and its environment."""

    environment: Environment
    policy: Policy
    timeline: Timeline = attrs.field(factory=Timeline, init=False)
    sampler: Sampler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        slots = SamplingSlots(self.recipe.sampling.concurrency, self.recipe.episode.turns, self.timeline)
        object.__setattr__(self, "sampler", Sampler(self.policy, self.policy_label, slots, self.timeline))

    @property
    def recipe(self) -> Recipe:
        """The recipe of the environment."""
        return self.environment.recipe

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
    session = Session(environment, policy)
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


def require_trainable(recipe: Recipe) -> None:
    """Refuse to train a policy that, with its options, has no loss. `require_learning` checks the started policy.

    Raises:
        UsageError: the policy cannot learn.
    """
    if not recipe.policy.options.capabilities().losses:
        raise _no_learning(recipe)


def require_learning(recipe: Recipe, policy: Policy) -> TrainablePolicy:
    """The started policy, checked for all capabilities that the recipe's training needs.

    `start` may remove capabilities that the options of the policy declare.

    Raises:
        UsageError: the policy cannot learn, or lacks the loss, the ratio or the log-probabilities of the recipe.
    """
    if not policy.capabilities.losses or not isinstance(policy, TrainablePolicy):
        raise _no_learning(recipe)
    lacking = next(missing_capabilities(recipe.train, recipe.policy, policy.capabilities), None)
    if lacking is not None:
        raise UsageError(f"{'.'.join(lacking.path)}: {lacking.message}", fix=lacking.hint, see="policy-options")
    return policy


def _no_learning(recipe: Recipe) -> UsageError:
    return UsageError(
        f"policy {recipe.policy.use!r} cannot learn with these options",
        fix="kernelrl eval RECIPE evaluates it, kernelrl optimize TASK searches with it; or choose another policy",
        see="policy-options",
    )
