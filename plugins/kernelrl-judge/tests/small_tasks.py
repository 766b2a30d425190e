"""Tasks of one line, and the families of harder inputs that a kernel fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.probes.stress import judged, stress_calls
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import load_reference

SETTINGS = EvaluationSettings()


def reference(
    forward: str,
    inputs: str = "torch.randn(8, 64)",
    init: str = "pass",
    names: str = "x",
    domain: str = "",
    settings: EvaluationSettings = SETTINGS,
) -> Reference:
    source = f"""
import torch

{f"DOMAIN = {domain}" if domain else ""}

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


def failed(task: Reference, kernel: Callable[..., Any]) -> set[str]:
    """Families that a kernel of this repository fails."""
    calls = list(stress_calls(task, left := []))
    assert calls, left
    return {call.family for call in calls if judged(call, kernel(*call.inputs)).wrong is not None}
