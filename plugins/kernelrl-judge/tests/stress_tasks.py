"""Tasks of one line, and what kernels fail of the probe `stress`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.probes import stress
from kernelrl_judge.probes.stress_calls import judged
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import load_reference

SETTINGS = EvaluationSettings()


def reference(
    forward: str,
    inputs: str = "torch.randn(8, 64)",
    init: str = "pass",
    names: str = "x",
    settings: EvaluationSettings = SETTINGS,
) -> Reference:
    source = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {names}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    found = Reference(load_reference(source, "task"), "task", settings, "cpu").under("5eed")
    found.trial(0)
    return found


def wrong_parts(task: Reference, kernel: Callable[..., Any], settings: EvaluationSettings = SETTINGS) -> set[str]:
    """Parts of the probe that a kernel fails."""
    used, calls, reason = stress.prepared(task, settings, spread=True)
    assert calls, reason
    state = used.state
    found = set()
    for call in calls:
        actual = kernel(*call.trial.inputs, **state)
        if judged(call, actual, settings, torch.float32).wrong is not None:
            found.add(call.part)
    return found
