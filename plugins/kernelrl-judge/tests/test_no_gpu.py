"""Reasons for the lack of a GPU, each with its fix."""

from __future__ import annotations

import pytest
import torch

from kernelrl_judge.device import facts


def _no_driver() -> None:
    raise RuntimeError("The NVIDIA driver on your system is too old\nUpdate it.")


@pytest.mark.parametrize(
    ("vendors", "cuda", "reason", "fix"),
    [
        ((), "13.0", "no GPU", "machine with a GPU"),
        (("nvidia",), None, "built for the CPU alone", "install a torch"),
        (("nvidia",), "13.0", "driver on your system is too old", "nvidia-smi"),
    ],
)
def test_each_reason_has_its_fix(
    vendors: tuple[str, ...], cuda: str | None, reason: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "gpu_vendors", lambda: frozenset(vendors))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "init", _no_driver)
    found_reason, found_fix = facts.no_gpu()
    assert reason in found_reason
    assert fix in found_fix
    assert "Update it" not in found_reason
