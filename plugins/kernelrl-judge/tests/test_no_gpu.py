"""Why there is no GPU: each reason has a fix of its own."""

from __future__ import annotations

import pytest
import torch

from kernelrl_judge.peer import device_facts


def _no_driver() -> None:
    raise RuntimeError("The NVIDIA driver on your system is too old\nUpdate it.")


@pytest.mark.parametrize(
    ("vendors", "cuda", "why", "fix"),
    [
        ((), "13.0", "no GPU", "machine with a GPU"),
        (("nvidia",), None, "built for the processor", "install a torch"),
        (("nvidia",), "13.0", "driver on your system is too old", "nvidia-smi"),
    ],
)
def test_each_reason_has_its_fix(
    vendors: tuple[str, ...], cuda: str | None, why: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_facts, "gpu_vendors", lambda: frozenset(vendors))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "init", _no_driver)
    said, mend = device_facts.no_gpu()
    assert why in said
    assert fix in mend
    assert "Update it" not in said
