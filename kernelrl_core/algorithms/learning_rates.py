"""Learning rate of each step: warm-up, then a schedule."""

from __future__ import annotations

import math

from kernelrl_core.recipe.schema import TrainSettings

__all__ = ["learning_rate", "warmup_steps"]


def learning_rate(train: TrainSettings, step: int, n_steps: int) -> float:
    """Learning rate of a step.

    With N steps, of which W are warm-up steps, step s gets learning_rate * (s + 1) / W if s < W. Otherwise it gets
    learning_rate * (floor + (1 - floor) * f), where p = (s - W) / (N - W) and f is 1 (`constant`), 1 - p (`linear`) or
    (1 + cos(pi * p)) / 2 (`cosine`).

    Source: `get_linear_schedule_with_warmup` and `get_cosine_schedule_with_warmup` of transformers, whose warm-up
    starts at 0; `learning_rate_floor` is `min_lr_ratio` of verl.

    Args:
        step: number of the step, from 0.
        n_steps: N, the steps of the whole run.
    """
    warmup = warmup_steps(train, n_steps)
    if step < warmup:
        return train.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, n_steps - warmup)
    factor = 1.0
    if train.learning_rate_schedule == "linear":
        factor = 1.0 - progress
    elif train.learning_rate_schedule == "cosine":
        factor = (1.0 + math.cos(math.pi * progress)) / 2
    floor = train.learning_rate_floor
    return train.learning_rate * (floor + (1.0 - floor) * factor)


def warmup_steps(train: TrainSettings, n_steps: int) -> int:
    """W = int(warmup_ratio * n_steps), the number of steps in which the learning rate rises."""
    return int(train.warmup_ratio * n_steps)
