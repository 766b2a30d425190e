"""Console output."""

from __future__ import annotations

import pytest

from kernelrl_core.monitoring.console import Console


def test_markup_in_a_line_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    text = "training run 'a:train:0' [bold] is not loaded"
    Console().show(text)
    assert capsys.readouterr().err == f"{text}\n"
