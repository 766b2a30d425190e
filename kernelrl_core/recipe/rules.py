"""Contradictions between the parts of a recipe: what no single key can show to be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.errors import KernelRLError
from kernelrl_core.kinds import RewardBounds
from kernelrl_core.naming import suggestion
from kernelrl_core.recipe.schema import Recipe, RewardUse
from kernelrl_core.registry import Registry

__all__ = ["contradictions"]

_COMPARING = ("rloo", "trloo")


def contradictions(recipe: Recipe, registry: Registry) -> Iterator[tuple[str, str]]:
    """Dotted path and message of each contradiction. Reads the options alone; nothing heavy is imported."""
    yield from _rewards(recipe)
    yield from _forbid(recipe, registry)
    train = recipe.train
    if train.steps is not None and train.epochs is not None:
        yield "train.epochs", "steps and epochs are both given; keep one of them"
    if train.group_size < train.min_group_size:
        yield "train.group_size", f"is {train.group_size}, below train.min_group_size ({train.min_group_size})"
    if train.group_size < 2 and recipe.advantage.use.rpartition(":")[2] in _COMPARING:
        yield "train.group_size", f"advantage {recipe.advantage.use!r} compares attempts and needs at least 2"
    if recipe.sampling.extend is not None and recipe.sampling.extend.max_tokens < recipe.sampling.max_tokens:
        yield "sampling.extend.max_tokens", f"is below sampling.max_tokens ({recipe.sampling.max_tokens})"
    if recipe.prompt.max_tokens is not None and recipe.prompt.shots == "few" and recipe.prompt.max_tokens < 256:
        yield "prompt.max_tokens", "leaves no room for examples; use prompt.shots=zero"
    if train.split == recipe.eval.split and (recipe.eval.every or recipe.eval.at_start or recipe.eval.at_end):
        yield "eval.split", f"is the split that is trained on ({train.split}), so it measures nothing that is held out"
    if isinstance(recipe.episode.stop, str) is False and not recipe.evaluation.timing:
        yield "episode.stop", "waits for a speedup, but evaluation.timing is false"


def _rewards(recipe: Recipe) -> Iterator[tuple[str, str]]:
    if not recipe.rewards:
        yield "rewards", "there is no reward, so nothing can be learnt"
        return
    gap = 0.0
    known = True
    for name, use in recipe.rewards.items():
        if use.weight and getattr(use.options, "needs_timing", lambda: False)() and not recipe.evaluation.timing:
            yield f"rewards.{name}", f"{use.use} needs run times, but evaluation.timing is false; set it, or weight: 0"
        bounds = _bounds(use)
        if bounds is None:
            known = False
        else:
            gap += use.weight * bounds.gap if use.weight >= 0 else use.weight * (bounds.high - bounds.low)
    if known and gap <= 0:
        yield (
            "rewards",
            f"a wrong kernel could earn as much as a right one: the weighted gaps add up to {gap:g}, not above 0; "
            "raise the weight of correctness, or lower those of the others",
        )


def _bounds(use: RewardUse) -> RewardBounds | None:
    bounds = getattr(use.options, "bounds", None)
    found = bounds() if callable(bounds) else None
    return found if isinstance(found, RewardBounds) else None


def _forbid(recipe: Recipe, registry: Registry) -> Iterator[tuple[str, str]]:
    if not recipe.checkers:
        # Without checkers no rule can be found broken, and none is stated.
        return
    known: set[str] = set()
    for use in recipe.checkers.values():
        try:
            known |= {rule.id for rule in registry.make("checkers", use).rules}
        except KernelRLError:
            return
    for rule in recipe.forbid:
        if rule not in known:
            yield "forbid", f"no checker of this recipe has a rule {rule!r}; {suggestion(rule, known)}"
