"""Generated tasks with demonstrations, for the warm start only.

The tasks of the catalogue are too few: a small model memorises them instead of learning to translate a reference line
by line. Generated tasks combine the same lines at random. None has the same lines as a task of the catalogue; `EQUAL`
names those that compute a held-out task all the same, which `train.decontaminate` excludes. They are used neither in
reinforcement learning nor in held-out evaluation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs

from kernelrl_plugin_starter.catalogue import ENTRIES
from kernelrl_plugin_starter.frames import Frame, read_reference
from kernelrl_plugin_starter.vocabulary import SAME_SHAPE

__all__ = ["EQUAL", "GeneratedTask", "generated_tasks"]

EQUAL = {"practice_0038": "starter/1/abs_double", "practice_0172": "starter/2/center_l1"}
"""Generated task -> the held-out task that it computes, as `kernelrl tasks audit` found by their outputs."""

_ALONE = tuple(line for line in SAME_SHAPE if "dim=1" not in line and " z" not in line and "self." not in line)
_PAIRED = tuple(line for line in SAME_SHAPE if " z" in line)
_BY_ROW = tuple(line for line in SAME_SHAPE if "dim=1" in line)
_ROW_VALUES = ("x = x.sum(dim=1)", "x = x.mean(dim=1)", "x = x.amax(dim=1)")
_PRODUCTS = ("x = x @ z", "x = x @ z.T")

_FRAMES: tuple[tuple[Frame, int], ...] = (("flat", 5), ("rows", 5), ("row_value", 4), ("product", 3), ("total", 1))
"""Frames and their weights in the random choice."""


@attrs.frozen
class GeneratedTask:
    """A generated task."""

    name: str
    frame: Frame
    reference: str
    """Source in KernelBench's format."""


def generated_tasks(count: int) -> Iterator[GeneratedTask]:
    """Yield `count` generated tasks with distinct lines; the sequence is deterministic."""
    draw = random.Random(0)
    seen = {(read_reference(entry.reference()).steps) for entry in ENTRIES}
    frames = [frame for frame, _ in _FRAMES]
    shares = [share for _, share in _FRAMES]
    made = 0
    while made < count:
        frame = draw.choices(frames, shares)[0]
        steps = tuple(_steps(draw, frame))
        if steps in seen:
            continue
        seen.add(steps)
        yield GeneratedTask(f"practice_{made:04d}", frame, _reference(steps, frame, draw))
        made += 1


def _steps(draw: random.Random, frame: Frame) -> list[str]:
    count = draw.choice((1, 2, 2, 3))
    if frame == "product":
        return [draw.choice(_PRODUCTS), *draw.sample(_ALONE, count - 1)]
    if frame == "total":
        return [*draw.sample(_ALONE, count - 1), "x = x.sum()"]
    steps = draw.sample(_ALONE, count)
    if draw.random() < 0.35:
        steps[draw.randrange(count)] = draw.choice(_PAIRED)
    if frame == "rows":
        steps[draw.randrange(count)] = draw.choice(_BY_ROW)
        if draw.random() < 0.4:
            steps.insert(draw.randrange(count + 1), draw.choice(_BY_ROW))
    if frame == "row_value":
        return [*steps[: count - 1], draw.choice(_ROW_VALUES)]
    return steps


def _reference(steps: tuple[str, ...], frame: Frame, draw: random.Random) -> str:
    size = draw.choice((50, 45, 60)) if frame in ("rows", "row_value") else draw.choice((1000, 900, 1100))
    shape = f"6, {size}" if frame in ("rows", "row_value") else f"{size}"
    scale = draw.choice((" * 2.0", " * 3.0", " * 3.0 + 1.0", ""))
    inputs = [f"torch.randn({shape}){scale}"]
    paired = any(" z" in line for line in steps)
    if frame == "product":
        other = "28, 20" if steps[0].endswith(".T") else "20, 28"
        inputs = ["torch.randn(44, 20)", f"torch.randn({other})"]
    elif paired:
        inputs.append(f"torch.randn({shape})")
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        f"    def forward(self, {'x, z' if paired else 'x'}):\n"
        + "".join(f"        {line}\n" for line in steps)
        + "        return x\n\n\ndef get_inputs():\n"
        f"    return [{', '.join(inputs)}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
