"""Review: the samples of a run that a person should look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kernelrl_core.api.runs import RunDir
from kernelrl_report.suspects import suspect_samples
from kernelrl_report.suspects_command import command
from kernelrl_testing.core import sample_row
from kernelrl_testing.values import make_turn

SUSPICION = {"rule": "library_operators", "severity": "suspect", "evidence": "60 % in a library", "checker": "measured"}
NOTE = {"rule": "kept_state", "severity": "note", "evidence": "line 3", "checker": "source"}


def row(sample: str, outcome: str = "correct", verdict: str = "clean", **further: Any) -> dict[str, Any]:
    whole = sample_row(make_turn())
    return {
        **whole,
        "sample": sample,
        "task_id": "starter/1/relu",
        "kernel_sha256": "ab",
        "outcome": outcome,
        "verdict": verdict,
        "speedup": 3.0 if outcome == "correct" else None,
        "score": {"total": 1.0, "parts": {}},
        "findings": [NOTE, SUSPICION] if verdict == "suspect" else [NOTE],
        "extraction": {**whole["extraction"], "candidate": {"source": f"# kernel of {sample}\n", "backend": "triton"}},
        "verified": None,
        **further,
    }


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    rows = [
        row("0.0.0.0"),
        row("0.0.1.0", verdict="suspect"),
        row("0.0.2.0", "hacked", "hack"),
        row("0.0.3.0", "incorrect", "suspect"),
        row("1.0.0.0", verified=False),
        row("1.0.1.0", verified=True),
        row("1.0.2.0", verdict="suspect"),
        row("1.0.2.0"),
    ]
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    return RunDir(tmp_path)


def test_correct_samples_that_are_suspect_or_failed_verification_are_listed(run: RunDir) -> None:
    assert [(found["sample"], found["row"]) for found in suspect_samples(run)] == [("0.0.1.0", 2), ("1.0.0.0", 5)]


def test_hacks_are_listed_on_request(run: RunDir) -> None:
    assert [found["sample"] for found in suspect_samples(run, hacked=True)] == ["0.0.1.0", "0.0.2.0", "1.0.0.0"]


def test_notes_are_excluded_from_the_findings(run: RunDir) -> None:
    assert suspect_samples(run)[0]["findings"] == [SUSPICION]


def test_the_command_prints_samples_and_writes_their_kernels(run: RunDir, tmp_path: Path) -> None:
    kernels = tmp_path / "audit"
    done = CliRunner().invoke(command, [str(run.path), "--kernels", str(kernels)])
    assert done.exit_code == 0, done.output
    assert "0.0.1.0  starter/1/relu  correct  speedup 3.00  row 2" in done.output
    assert "library_operators (suspect): 60 % in a library" in done.output
    assert (kernels / "0.0.1.0.py").read_text() == "# kernel of 0.0.1.0\n"


def test_json_output_is_one_document(run: RunDir) -> None:
    done = CliRunner().invoke(command, [str(run.path), "--json"])
    assert [found["sample"] for found in json.loads(done.output)["suspects"]] == ["0.0.1.0", "1.0.0.0"]
