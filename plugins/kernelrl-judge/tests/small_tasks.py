"""References whose `forward` is one line, and the families of harder inputs that a kernel fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.probes.stress_calls import compare_stressed, stress_calls
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
    made = Reference(load_reference(source, "task"), "task", settings, "cpu").with_seed("5eed")
    made.trial(0)
    return made


def failed(task: Reference, kernel: Callable[..., Any]) -> set[str]:
    """Families of harder inputs under which the outputs of a kernel are incorrect."""
    inapplicable: list[str] = []
    calls = list(stress_calls(task, inapplicable))
    assert calls, inapplicable
    return {call.family for call in calls if compare_stressed(call, kernel(*call.inputs)).mismatch is not None}
