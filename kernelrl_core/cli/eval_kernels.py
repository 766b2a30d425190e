"""The option `--kernels` of `kernelrl eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kernelrl_core.heldout.evaluate import EvalJob

__all__ = ["refuse_policy_options", "with_kernels"]


def refuse_policy_options(options: Mapping[str, Any]) -> None:
    """
    Args:
        options: the options that only a policy has, with their values.

    Raises:
        UsageError: one of them is given.
    """
    from kernelrl_core.errors import UsageError

    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} is for a policy, and --kernels starts none", fix=f"remove {name} or --kernels")


def with_kernels(job: EvalJob, kernels: str, split: str | None) -> EvalJob:
    """The job with existing kernels in place of its policy. Prints how many kernels and tasks are excluded, and why.

    Args:
        split: only tasks of this split. None: those of all splits.

    Raises:
        UsageError: the kernels cannot be read, or a file fits no task.
    """
    import attrs

    from kernelrl_core.heldout.existing_kernels import read_existing
    from kernelrl_core.recipe.schema import PositiveInt

    existing = read_existing(kernels, job.registry.make("tasks", job.recipe.tasks), split)
    for note in existing.notes:
        click.echo(note, err=True)
    settings = attrs.evolve(job.recipe.eval, split=existing.splits, samples=PositiveInt(existing.samples))
    # Without a policy there is no prompt, and so no example to retrieve.
    recipe = attrs.evolve(job.recipe, eval=settings, retriever=None)
    label = f"the kernels of {kernels}"
    return attrs.evolve(job, recipe=recipe, label=label, checkpoint=None, existing=existing)
