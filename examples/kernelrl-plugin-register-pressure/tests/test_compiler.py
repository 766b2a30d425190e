"""Reports of the real compiler. Needs nvcc, kernelrl-plugin-cuda and kernelrl-plugin-local, and no GPU."""

import shutil
from pathlib import Path

import attrs
import pytest
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_candidate, make_request, make_task, make_turn

from kernelrl_core.api.evaluators import Outcome
from kernelrl_plugin_register_pressure.checker import RegisterLimit
from kernelrl_plugin_register_pressure.options import RegisterLimitConfig, RegisterPressureConfig
from kernelrl_plugin_register_pressure.reward import RegisterPressure

for module in ("kernelrl_plugin_cuda", "kernelrl_plugin_local", "torch"):
    pytest.importorskip(module)
pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

SOURCE = Path(__file__).with_name("limited_kernel.py").read_text()


def test_a_kernel_with_limited_registers_gets_no_score_and_a_finding(evaluate: Evaluate) -> None:
    found = evaluate(make_request(SOURCE, backend="cuda", backend_options={"mode": "compile"}))
    limited, free = sorted(found.kernels, key=lambda kernel: kernel.registers)
    assert (limited.name, free.name) == ("limited", "free_registers")
    assert limited.spill_stores_bytes > 0 == free.spill_stores_bytes

    reward = RegisterPressure(RegisterPressureConfig())
    # As if it had been executed: only a GPU shows that it is correct.
    both = attrs.evolve(found, outcome=Outcome.CORRECT)
    alone = attrs.evolve(both, kernels=(free,))
    assert reward.score(make_turn(evaluation=both)) == 0.0
    assert 0.5 < reward.score(make_turn(evaluation=alone)) < 1.0

    checker, candidate = RegisterLimit(RegisterLimitConfig()), make_candidate(SOURCE, "cuda")
    (finding,) = checker.check(candidate, make_task(), both)
    assert "kernel limited spills" in finding.evidence
    assert "__launch_bounds__" in SOURCE.splitlines()[(finding.line or 0) - 1]
