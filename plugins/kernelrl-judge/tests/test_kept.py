"""What calls of a reference leave outside of parameters and buffers, and kernels that do not."""

from __future__ import annotations

import pytest
import torch
from stress_tasks import SETTINGS, reference

from kernelrl_judge.comparing import tolerance
from kernelrl_judge.effects import other_kept


@pytest.mark.parametrize(
    ("forward", "init", "names"),
    [
        ("self.likeness = x @ x.t(); return x", "pass", {"likeness"}),
        ("self.seen['last'].copy_(x); return x", "self.seen = {'last': torch.zeros(8, 64)}", {"seen['last']"}),
        ("self.cache.keys = x * 2; return x", "self.cache = type('Cache', (), {})()", {"cache.keys"}),
        (
            "self.w.grad = x.t() @ x; return x @ self.w",
            "self.w = torch.nn.Parameter(torch.randn(64, 64))",
            {"w.grad"},
        ),
        # What all calls before have added to.
        ("self.total = self.total + x; return x", "self.total = torch.zeros(8, 64)", set()),
        # A table that is made once, and what is only there.
        ("self.table = torch.arange(64.0); return x + self.table", "pass", set()),
        ("return x * self.scale", "self.scale = torch.ones(64)", set()),
        ("self.peak = float(x.max()); return x", "self.peak = 0.0", {"peak"}),
        # A number of calls, and one that is always the same.
        ("self.calls += 1; self.rows = len(x); return x", "self.calls = 0", set()),
        ("return x", "pass", set()),
    ],
)
def test_what_a_call_makes_of_its_inputs_and_keeps_belongs_to_what_it_does(
    forward: str, init: str, names: set[str]
) -> None:
    assert reference(forward, init=init).trial(1).kept.keys() == names


def test_a_kernel_that_does_not_keep_it_is_suspect() -> None:
    task, limit = reference("self.likeness = x @ x.t(); return x"), tolerance(SETTINGS)
    trial = task.trial(1)
    (x,) = trial.inputs
    assert torch.equal(trial.kept["likeness"], x @ x.t())
    assert other_kept(trial.kept, {"likeness": x @ x.t()}, limit) == ()
    for after in ({}, {"likeness": x @ x.t() + 1.0}):
        (found,) = other_kept(trial.kept, after, limit)
        assert found.rule == "effects"
        assert "likeness" in found.evidence
