"""Tasks, and kernels for them that prompts show or the warm start trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from kernelrl_core.types.hashes import sha256_text
from kernelrl_core.types.outcomes import Outcome
from kernelrl_core.types.replies import Message

__all__ = [
    "DOMAIN_OF_OTHERS",
    "Demonstration",
    "Example",
    "ExcludedExample",
    "ShownExample",
    "Task",
    "TaskSettings",
    "WarmStartExample",
]

DOMAIN_OF_OTHERS = "others"
"""Domain of the tasks that the user of a command marks as tasks of others."""


@attrs.frozen
class TaskSettings:
    """Settings of a curriculum stage that replace those of the recipe. None or empty: no replacement."""

    atol: float | None = None
    """Absolute tolerance."""
    rtol: float | None = None
    """Relative tolerance."""
    trials: int | None = None
    """Correctness trials."""
    weights: Mapping[str, float] = attrs.field(factory=dict, hash=False)
    """Weights of reward components, by their names in the recipe."""


@attrs.frozen
class Task:
    """A reference program in KernelBench's format: `Model`, `get_inputs()`, `get_init_inputs()`."""

    id: str
    """Unique name within a run, such as `kernelbench/1/19` or `starter/1/relu_double`."""
    reference: str
    """Python source of the reference. Only the judge executes it."""
    split: str = "train"
    """Name of the task's split (`train`, `held_out`, …)."""
    level: int | None = None
    """Difficulty level, if the task source has levels."""
    name: str = ""
    """Short readable name."""
    flags: tuple[str, ...] = ()
    """Quality flags of an audit, such as `constant_pass`."""
    equals: tuple[str, ...] = ()
    """Content hashes of other tasks that compute the same, as an audit found."""
    precision: Literal["fp32", "fp16", "bf16"] | None = None
    """Precision that the task requires; None: that of the recipe."""
    input_overlay: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] | None = None
    """Overlay that repairs the task's inputs (`EvaluationSettings.input_overlay`), if the recipe names none."""
    settings: TaskSettings = TaskSettings()
    """Settings and weights of the curriculum stage."""
    domain: str = ""
    """Owner of the task, if it is code of others; empty: the user's own. The judge of such a task is confined, and
    serves tasks of one domain only."""

    @property
    def sha256(self) -> str:
        """Content hash: the identity of a task in caches and comparisons."""
        return sha256_text(self.reference)


@attrs.frozen
class Demonstration:
    """A kernel for a task, for the warm start. Reinforcement learning never uses it."""

    source: str
    """Python source that defines `ModelNew`, or text that deliberately does not."""
    backend: str
    """Backend of the kernel."""
    outcome: Outcome
    """Expected outcome of the kernel."""
    flaw: str = ""
    """Name of the deliberate flaw; empty for a correct kernel."""
    weight: float = 1.0
    """Relative weight among the demonstrations of the task."""


@attrs.frozen
class WarmStartExample:
    """A demonstration as the policy sees it, composed like the prompts of training."""

    messages: tuple[Message, ...]
    """Messages before the reply, including earlier turns and their feedback if episodes have several turns."""
    reply: str
    """Text of the reply to train on."""
    weight: float
    """Relative weight among all examples."""
    task_id: str
    """Id of the task."""
    outcome: Outcome
    """Expected outcome of the reply."""


@attrs.frozen
class Example:
    """A pair of reference and kernel that a prompt shows."""

    reference: str
    """Python source of the reference."""
    kernel: str
    """Python source of the kernel."""
    name: str = ""
    """Short readable name."""
    origin: str = ""
    """Corpus and revision of the pair, for the journal."""
    similarity: float | None = None
    """Similarity to the task, as computed by the retriever."""
    id: str = ""
    """Stable name, unique among the examples of a retriever. Empty: the core derives it from the sources."""
    speedup: float | None = None
    """Measured speedup of the kernel over PyTorch eager; None if it is unknown."""
    solves: tuple[str, ...] = ()
    """Content hashes of tasks with which the reference was compared by its outputs, and whose outputs it has."""


@attrs.frozen
class ShownExample:
    """An example that a prompt showed."""

    id: str
    """`Example.id`; empty for the backend's own example."""
    origin: str
    """`Example.origin`; `backend` for the backend's own example, shown because no retrieved example was left."""
    similarity: float | None = None
    """Similarity to the task, as computed by the retriever."""


@attrs.frozen
class ExcludedExample:
    """An example that the retriever found and the prompt did not show."""

    id: str
    """`Example.id`."""
    origin: str
    """`Example.origin`."""
    similarity: float | None
    """Similarity to the task, as computed by the retriever."""
    reason: Literal["leak_task", "leak_held_out", "forbidden", "length"]
    """`leak_task`: solution of the task. `leak_held_out`: solution of a held-out task. `forbidden`: the kernel breaks a
    stated rule. `length`: the prompt did not fit into the context."""
