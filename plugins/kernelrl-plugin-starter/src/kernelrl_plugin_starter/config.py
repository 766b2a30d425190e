"""Options of the starter tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.api.config import Fraction, NonNegativeInt, PositiveInt
from kernelrl_core.api.tasks import TaskConfig

__all__ = ["ComposeOptions", "Size", "StarterOptions"]

Size = Literal["small", "large", "huge"]


@attrs.frozen
class StarterOptions(TaskConfig):
    """Selection of the starter tasks and the weights of their demonstrations."""

    levels: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    """Levels to include: 1 elementwise and reductions; 2 normalisation, softmax, matmul, scans; 3 fusions."""
    names: tuple[str, ...] = ()
    """Names of the tasks to include, such as `softmax`; empty: all tasks of the levels, in both splits."""
    practice: NonNegativeInt = NonNegativeInt(400)
    """Number of generated tasks in the split `practice`, at most 9999. They add variety to the warm start and are never
    used for reinforcement learning or held-out evaluation."""
    size: Size = "small"
    """Size of the inputs. `small`: a few hundred elements, for Triton's interpreter; `large`: about 400,000, for timing
    on a CPU; `huge`: about 17 million, for timing on a GPU, with fast, middling and slow Triton demonstrations."""
    right_share: Fraction = Fraction(0.4)
    """Share of correct demonstrations in the total weight of a task; flawed ones get the rest."""

    def problems(self) -> Iterable[str]:
        """Report an empty `levels`."""
        if not self.levels:
            yield "levels: name at least one of 1, 2, 3"


@attrs.frozen
class ComposeOptions(TaskConfig):
    """Number, kind and size of the tasks by composition."""

    count: PositiveInt = PositiveInt(2000)
    """Number of training tasks. A smaller number selects the first ones."""
    held_out: PositiveInt = PositiveInt(200)
    """Number of held-out tasks."""
    levels: tuple[Literal[2, 3, 4, 5], ...] = (2, 3, 4)
    """Numbers of parts that a composition may have. Split `practice` has each part alone."""
    dtypes: tuple[Literal["float32", "float16", "bfloat16"], ...] = ("float32", "float16", "bfloat16")
    """Dtypes of the inputs. Scans and reductions are always in float32."""
    size: Literal["small", "huge"] = "small"
    """Size of the inputs. `small`: hundreds of elements, for Triton's interpreter; `huge`: about 8 million, for timing
    on a GPU."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Seed of the compositions, their inputs, and the pairs of parts that are held out."""

    def problems(self) -> Iterable[str]:
        """Report empty lists."""
        if not self.levels:
            yield "levels: name at least one of 2, 3, 4, 5"
        if not self.dtypes:
            yield "dtypes: name at least one of float32, float16, bfloat16"
