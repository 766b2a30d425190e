"""Tasks, what is known about them, and answers to them that are shown or learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from kernelrl_core.types.hashes import sha256_text
from kernelrl_core.types.outcomes import Outcome
from kernelrl_core.types.replies import Message

__all__ = ["Demonstration", "Example", "Task", "TaskSettings", "WarmStartExample"]


@attrs.frozen
class TaskSettings:
    """What a curriculum asks of a task in place of the recipe's own; nothing where it is empty."""

    atol: float | None = None
    """Absolute tolerance."""
    rtol: float | None = None
    """Relative tolerance."""
    trials: int | None = None
    """Correctness trials."""
    weights: Mapping[str, float] = attrs.field(factory=dict, hash=False)
    """Weights of rewards, by their names in the recipe."""


@attrs.frozen
class Task:
    """A reference program in KernelBench's format: `Model`, `get_inputs()`, `get_init_inputs()`."""

    id: str
    """Unique name within a run, such as `kernelbench/1/19` or `starter/1/relu`."""
    reference: str
    """Python source of the reference. Parsed by anyone, executed by the judge alone."""
    split: str = "train"
    """Name of the split the task belongs to (`train`, `held_out`, …)."""
    level: int | None = None
    """Difficulty level, where the source has levels."""
    name: str = ""
    """Short readable name."""
    flags: tuple[str, ...] = ()
    """Quality flags of an audit, such as `constant_output`."""
    precision: Literal["fp32", "fp16", "bf16"] | None = None
    """Precision the task demands (`fp32`, `fp16`, `bf16`), or None for the recipe's."""
    input_overlay: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] | None = None
    """Overlay that mends the task's inputs (`EvaluationSettings.input_overlay`), where the recipe names none."""
    settings: TaskSettings = TaskSettings()
    """How it is judged and paid in the stage of a curriculum."""

    @property
    def sha256(self) -> str:
        """Content hash: the identity of a task wherever results are cached or compared."""
        return sha256_text(self.reference)


@attrs.frozen
class Demonstration:
    """A bundled answer to a task, for a supervised warm start. Reinforcement learning never sees one."""

    source: str
    """Python source that defines `ModelNew`, or text that is deliberately not that."""
    backend: str
    """Backend the answer is written for."""
    outcome: Outcome
    """How the answer must end when judged; a test checks it."""
    flaw: str = ""
    """Name of the planted flaw, empty for a right answer."""
    weight: float = 1.0
    """Relative share of this answer among the answers to its task."""


@attrs.frozen
class WarmStartExample:
    """A demonstration as the policy sees it: composed by core exactly like the prompts of training."""

    messages: tuple[Message, ...]
    """The conversation up to the reply; with earlier turns and their feedback where the recipe has several turns."""
    reply: str
    """Text of the reply that is imitated."""
    weight: float
    """Relative share among all examples."""
    task_id: str
    outcome: Outcome
    """How the reply ends when judged."""


@attrs.frozen
class Example:
    """A worked pair of reference and kernel shown in a prompt."""

    reference: str
    kernel: str
    name: str = ""
    origin: str = ""
    """Where the pair comes from (corpus and revision), for the journal."""
    similarity: float | None = None
