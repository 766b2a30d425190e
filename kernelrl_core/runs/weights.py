"""The weights of a checkpoint in a format that inference servers and other libraries load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_core.interfaces.policies import Policy, PolicyContext, TrainablePolicy
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.runs.checkpoints import load_checkpoint
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.storage import cache_directory, disk_error
from kernelrl_core.types import WarmStartExample
from kernelrl_core.types.seeds import derived_seed

__all__ = ["export_weights"]


async def export_weights(
    run: RunDir,
    recipe: Recipe,
    registry: Registry,
    checkpoint: Mapping[str, Any],
    directory: Path,
    *,
    say: Callable[[str], None],
) -> None:
    """Load a checkpoint into the policy of a run, and export it into an existing directory. No evaluator is started.

    Args:
        checkpoint: its row of `checkpoints.jsonl`.
        say: prints a line for the user.

    Raises:
        UsageError: the policy cannot export weights.
        MissingPrerequisite: this machine lacks a prerequisite of the policy.
        StorageError: the disk is full, broken or read-only.
        KernelRLError: the files of the checkpoint are damaged, or the policy fails.
    """
    label = f"policy {recipe.policy.use!r}"
    _require_export(label, recipe.policy.options.capabilities().exports)
    # Not the prerequisites of the whole recipe: its evaluator and backend may need a GPU.
    missing = registry.missing(registry.find("policies", recipe.policy.use), recipe.policy.options)
    if missing:
        raise MissingPrerequisite(
            "\n".join(f"missing: {one.what}" for one in missing), fix="; ".join(one.fix for one in missing)
        )
    policy: Policy = registry.make("policies", recipe.policy)
    context = PolicyContext(
        seed=derived_seed(recipe.seed, "policy"),
        cache_dir=cache_directory(),
        run_dir=None,
        demonstrations=_no_demonstrations,
        demonstrations_key="",
        say=say,
        weights_follow=True,
    )
    try:
        with plugin_boundary(label, "start"):
            await policy.start(context)
        _require_export(label, policy.capabilities.exports)
        assert isinstance(policy, TrainablePolicy), "a policy that exports weights is trainable"
        await load_checkpoint(policy, run.checkpoints, checkpoint, component=label)
        with plugin_boundary(label, "export"):
            try:
                await policy.export(directory)
            except OSError as error:
                raise disk_error(directory.parent.absolute(), error) from error
    finally:
        await policy.aclose()


def _require_export(label: str, exports: bool) -> None:
    if not exports:
        raise UsageError(
            f"{label} cannot export weights", fix="docs/export.md lists the policies that can", see="export"
        )


async def _no_demonstrations() -> Sequence[WarmStartExample]:
    return ()
