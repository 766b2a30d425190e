"""The evaluation specification: the part of a recipe that `kernelrl check` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers
from kernelrl_core.recipe.parts import read_parts
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import EvaluationSettings

__all__ = [
    "DEFAULT_EVALUATION",
    "EVALUATION_KEYS",
    "EvaluationSpec",
    "read_evaluation_spec",
    "spec_from_parts",
    "spec_of",
]

EVALUATION_KEYS = ("backend", "evaluator", "evaluation", "checkers", "forbid")
"""Recipe keys of an evaluation specification, in the order of its fields."""


class _DefaultEvaluation(Mapping[str, Any]):
    """The default components of the installed plugins. Read on use: importing this module loads no plugin."""

    def __getitem__(self, key: str) -> Any:
        if key == "checkers":
            return {name.rpartition(":")[2]: {"use": name} for name in registry().defaults("checkers")}
        return {"use": registry().default(blocks()[key].kind)}

    def __iter__(self) -> Iterator[str]:
        return iter(("backend", "evaluator", "checkers"))

    def __len__(self) -> int:
        return 3


DEFAULT_EVALUATION: Mapping[str, Any] = _DefaultEvaluation()
"""Evaluation keys of `kernelrl check` without `--recipe`: the components that plugins declare as defaults."""


@attrs.frozen
class EvaluationSpec:
    """Backend, evaluator, checkers, stated rules and settings of an evaluation."""

    backend: Use
    """Kernel language."""
    evaluator: Use
    """Where candidates are evaluated."""
    settings: EvaluationSettings
    """Recipe key `evaluation`."""
    checkers: Mapping[str, Use]
    """Checkers by their names in the recipe."""
    forbid: tuple[str, ...]
    """Stated rules. A candidate that breaks one is rejected before it is executed."""

    def uses(self) -> Iterator[tuple[str, Use]]:
        """Kind and block of every component of the specification."""
        yield "backends", self.backend
        yield "evaluators", self.evaluator
        yield from (("checkers", use) for use in self.checkers.values())


def spec_of(recipe: Recipe) -> EvaluationSpec:
    """The evaluation specification of a recipe."""
    return EvaluationSpec(recipe.backend, recipe.evaluator, recipe.evaluation, recipe.checkers, recipe.forbid)


def read_evaluation_spec(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, registry: Registry
) -> EvaluationSpec:
    """Read an evaluation specification from plain data.

    Args:
        data: recipe keys, such as `{"backend": {"use": "triton"}}`. Only evaluation keys are allowed.
        overrides: `a.b=VALUE`, each key at most once.

    Raises:
        RecipeError: lists all mistakes.
    """
    merged = merge_layers([Merged(dict(data)), *override_layers(overrides)])
    return spec_from_parts(read_parts(merged, EVALUATION_KEYS, registry))


def spec_from_parts(parts: Mapping[str, Any]) -> EvaluationSpec:
    """The evaluation specification among typed recipe keys."""
    return EvaluationSpec(*(parts[key] for key in EVALUATION_KEYS))
