"""What the user sees is what was said."""

from __future__ import annotations

import pytest

from kernelrl_core.monitoring.console import Console


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "training run 'a:train:0' [bold] is not loaded"
    Console().show(text)
    assert capsys.readouterr().err == f"{text}\n"
