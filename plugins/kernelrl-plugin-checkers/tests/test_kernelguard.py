"""The adapter of kernelguard: its patterns as findings, where it is installed."""

from __future__ import annotations

import pytest

from kernelrl_core.api.checkers import Candidate, Evaluation, Finding, Severity
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Outcome, Task
from kernelrl_plugin_checkers.config import KernelguardConfig

pytest.importorskip("kernelguard", reason="the package kernelguard is not installed")

PATCHED = "import time\ntime.perf_counter = lambda: 0.0\nimport torch\ntorch.cuda.Event.elapsed_time = lambda *a: 0.0\n"


def check(source: str, *skip: str, evaluation: Evaluation | None = None) -> list[Finding]:
    from kernelrl_plugin_checkers.kernelguard import Kernelguard

    checker = Kernelguard(KernelguardConfig(skip))
    return list(checker.check(Candidate(source, "cuda"), Task("test", ""), evaluation))


def test_a_pattern_is_a_note_with_evidence() -> None:
    (finding, *_) = check(PATCHED)
    assert finding.rule == "kernelguard_timer_monkeypatch"
    assert finding.evidence.startswith("TIMER_MONKEYPATCH: ")
    assert finding.severity is Severity.NOTE


def test_no_rule_is_more_than_a_note() -> None:
    from kernelrl_plugin_checkers.kernelguard import Kernelguard

    rules = Kernelguard(KernelguardConfig()).rules
    assert {rule.severity for rule in rules} == {Severity.NOTE}
    assert len({rule.id for rule in rules}) == len(rules)


def test_a_rule_can_be_skipped() -> None:
    rules = {finding.rule for finding in check(PATCHED)}
    assert rules - {finding.rule for finding in check(PATCHED, "kernelguard_timer_monkeypatch")} == {
        "kernelguard_timer_monkeypatch"
    }


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        check(PATCHED, "kernelguard_timer_monkeypath")
    assert "kernelguard_timer_monkeypatch" in (caught.value.fix or "")


def test_an_evaluation_has_no_findings() -> None:
    assert check(PATCHED, evaluation=Evaluation(Outcome.CORRECT)) == []


@pytest.mark.parametrize("source", ["x = '\ud800'", "-" * 15_000 + "1", "1" + "+1" * 9_000, "x = 1\n" * 10_000])
def test_an_unreadable_source_is_noted(source: str) -> None:
    assert [(finding.rule, finding.severity) for finding in check(source)] == [("kernelguard_unread", Severity.NOTE)]
