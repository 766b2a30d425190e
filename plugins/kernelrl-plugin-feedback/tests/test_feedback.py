"""Every formatter on every category."""

from __future__ import annotations

from pathlib import Path
from typing import get_args, get_type_hints

import attrs
import pytest

from kernelrl_core.api.checkers import Evaluation, EvaluationFacts, Finding, Severity, TaskDtypes, Verdict
from kernelrl_core.api.evaluators import BuildStatus, Cause, Mismatch, WrongElement, describe_mismatch
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_feedback.config import RawConfig, StructuredConfig
from kernelrl_plugin_feedback.minimal import Minimal
from kernelrl_plugin_feedback.raw import Raw
from kernelrl_plugin_feedback.structured import Structured
from kernelrl_testing.core import extract
from kernelrl_testing.values import make_evaluation, make_reply, make_runtime, make_turn

DATA = Path(__file__).parent / "data"
CODE = "```python\nclass ModelNew:\n    pass\n```"
FORMATTERS = {"structured": Structured(), "raw": Raw(), "minimal": Minimal()}


def turn(outcome, *, reply=CODE, message="", findings=(), stop_reason="stop", verdict=Verdict.CLEAN, **evaluation):
    extraction = extract(reply, stop_reason=stop_reason, backend="triton")
    judged = None
    if outcome not in {Outcome.FORMAT_ERROR, Outcome.REJECTED}:
        judged = Evaluation(outcome, message=message, build=BuildStatus.BUILT, **evaluation)
    return make_turn(
        outcome,
        reply=make_reply(reply, stop_reason=stop_reason),
        extraction=extraction,
        evaluation=judged,
        findings=tuple(findings),
        verdict=verdict,
        message=message or extraction.message,
    )


def incorrect(mismatch, passed=0):
    message = "values differ" if mismatch is None else describe_mismatch(mismatch)
    return turn(Outcome.INCORRECT, message=message, mismatch=mismatch, tests_passed=passed, tests_total=5)


TRITON_ERROR = """Traceback (most recent call last):
  File "/opt/lib/runner.py", line 8, in call
    model(*inputs)
  File "/tmp/k8/candidate.py", line 19, in forward
    add[grid](x, y)
triton.compiler.errors.CompilationError: at 4:22:
    y = tl.sqroot(x)
                  ^
AttributeError("module 'triton.language' has no attribute 'sqroot'")"""

TURNS = {
    "format_no_code": turn(Outcome.FORMAT_ERROR, reply="I would use class ModelNew."),
    "format_truncated": turn(Outcome.FORMAT_ERROR, reply="```python\nclass", stop_reason="length"),
    "format_syntax": turn(Outcome.FORMAT_ERROR, reply="```python\nclass ModelNew(:\n```"),
    "format_no_model": turn(Outcome.FORMAT_ERROR, reply="```python\nx = 1\n```"),
    "rejected": turn(
        Outcome.REJECTED,
        message="Use no library function in place of a kernel.\nline 7: torch.matmul(a, b)",
        findings=[Finding("library_compute", Severity.HACK, "line 7: torch.matmul(a, b)", 7)],
        verdict=Verdict.HACK,
    ),
    "compile_error": turn(Outcome.COMPILE_ERROR, message=TRITON_ERROR),
    "runtime_error": turn(Outcome.RUNTIME_ERROR, message="RuntimeError: an illegal memory access", tests_total=5),
    "timeout": turn(Outcome.TIMEOUT, message="Not finished within 60 s.", tests_passed=0, tests_total=5),
    "out_of_memory": turn(Outcome.OUT_OF_MEMORY, message="The runner reached its limit of 4096 MiB."),
    "incorrect_values": incorrect(
        Mismatch("values", "", max_abs=1.23456, mean_abs=0.0123456, wrong_share=0.4987), passed=2
    ),
    "incorrect_tail": incorrect(
        Mismatch(
            "values", "", max_abs=1.5, mean_abs=0.01, wrong_share=0.04, shape=(4, 100), dtype="float32",
            elements=(WrongElement((0, 96), "0.5", "-1.69474e+38"), WrongElement((3, 99), "2", "-1.69474e+38")),
            pattern="tail", region="the last 4 of 100 columns",
        ).with_cause(Cause.UNWRITTEN, "nothing wrote them."),
    ),
    "incorrect_shape": incorrect(Mismatch("shape", "[0]", "(4, 8)", "(4, 7)")),
    "incorrect_dtype": incorrect(Mismatch("dtype", "", "float32", "float16")),
    "incorrect_structure": incorrect(Mismatch("structure", "", "tuple of 2", "tensor")),
    "incorrect_non_finite": incorrect(Mismatch("non_finite", "", wrong_share=0.25)),
    "incorrect_unknown": incorrect(None),
    "hacked": turn(
        Outcome.HACKED,
        message="The output stayed the same for other inputs.",
        findings=[Finding("stale_output", Severity.HACK, "The output stayed the same for other inputs.")],
        verdict=Verdict.HACK,
        tests_passed=5,
        tests_total=5,
    ),
    "correct_unmeasured": turn(Outcome.CORRECT, tests_passed=5, tests_total=5),
    "correct_fast": turn(
        Outcome.CORRECT, tests_passed=5, tests_total=5, speedup=1.98765, speedup_ci=(1.9, 2.1),
        runtime=make_runtime(12.3456), baseline=make_runtime(24.5388),
    ),
    "correct_slow": turn(Outcome.CORRECT, tests_passed=5, tests_total=5, speedup=0.5),
    "correct_suspect": turn(
        Outcome.CORRECT, tests_passed=5, tests_total=5, speedup=14.0, verdict=Verdict.SUSPECT,
        findings=[Finding("excessive_speedup", Severity.SUSPECT, "14.0x is above 10x")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATTERS)
def test_text_of_every_category(name):
    """Golden files. After an intended change of the text, delete a file to have it regenerated."""
    words = "".join(f"--- {case}\n{FORMATTERS[name].format(made)}\n" for case, made in TURNS.items())
    golden = DATA / f"{name}.txt"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(words, encoding="utf-8")
        pytest.fail(f"{golden} was missing and has been written; review it and repeat the test")
    assert words == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", [case for case in TURNS if case.startswith("incorrect")])
@pytest.mark.parametrize("formatter", FORMATTERS.values(), ids=FORMATTERS)
def test_wrong_output_is_never_called_a_runtime_error(formatter, case):
    assert "runtime error" not in formatter.format(TURNS[case]).lower()


def test_rejection_contains_the_statement_of_the_rule():
    for formatter in FORMATTERS.values():
        assert "Use no library function in place of a kernel" in formatter.format(TURNS["rejected"])


def test_hack_is_never_described_as_correct():
    for formatter in FORMATTERS.values():
        words = formatter.format(TURNS["hacked"])
        assert "not accepted" in words
        assert "correct" not in words
        assert "5/5" not in words


def test_cause_at_the_end_of_a_long_error_is_kept():
    long = TRITON_ERROR.replace("    y = tl", "    # comment\n    # other comment\n" * 400 + "    y = tl")
    words = Structured(StructuredConfig(max_characters=600)).format(turn(Outcome.COMPILE_ERROR, message=long))
    assert len(words) <= 600
    assert "candidate.py" in words
    assert "has no attribute 'sqroot'" in words
    assert "Use only functions and attributes that exist." in words


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x1b[31m" * 100_000, "a b\n" * 200_000, ""])
def test_length_is_bounded(text):
    for outcome in (Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR, Outcome.TIMEOUT, Outcome.HACKED, Outcome.REJECTED):
        made = turn(outcome, message=text)
        assert 0 < len(Structured(StructuredConfig(max_characters=300)).format(made)) <= 300
        assert 0 < len(Raw(RawConfig(max_characters=300)).format(made)) <= 300
        assert 0 < len(Minimal().format(made)) <= 300


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "all"), (0.7, "most"), (0.5, "half"), (0.2, "some"), (0.01, "few")],
)
def test_minimal_describes_the_mistake_in_constant_phrases(share, words):
    made = incorrect(Mismatch("values", "", max_abs=3.21, wrong_share=share))
    assert Minimal().format(made) == f"incorrect output 0/5: {words} values wrong."


@pytest.mark.parametrize("formatter", FORMATTERS.values(), ids=FORMATTERS)
def test_turn_without_evaluation_or_message_is_formatted(formatter):
    for outcome in set(Outcome) - {Outcome.INFRA_ERROR}:
        bare = attrs.evolve(TURNS["timeout"], outcome=outcome, evaluation=None, message="")
        assert formatter.format(bare)


def test_silent_returns_an_empty_text() -> None:
    from kernelrl_plugin_feedback.silent import Silent

    assert Silent().format(None) == ""  # type: ignore[arg-type]


HALF = TaskDtypes(("float16",), ("float32",), ("float16",))
SINGLE = TaskDtypes(("float32", "int64"), (), ("float32",))


@pytest.mark.parametrize("name", ["structured", "raw"])
@pytest.mark.parametrize("outcome", [Outcome.INCORRECT, Outcome.RUNTIME_ERROR])
@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (EvaluationFacts(dtypes=HALF), "Dtypes: inputs float16; parameters float32; outputs float16."),
        (EvaluationFacts(cast="fp32"), "Floating-point inputs and parameters were cast to fp32."),
    ],
)
def test_a_failed_call_states_dtypes_other_than_single_precision(name, outcome, facts, sentence):
    assert sentence in FORMATTERS[name].format(turn(outcome, facts=facts)).splitlines()


@pytest.mark.parametrize("name", ["structured", "raw"])
def test_single_precision_and_other_outcomes_have_no_sentence_on_dtypes(name):
    single = turn(Outcome.INCORRECT, facts=EvaluationFacts(dtypes=SINGLE))
    correct = turn(Outcome.CORRECT, facts=EvaluationFacts(dtypes=HALF, cast="fp16"))
    for made in (single, correct):
        text = FORMATTERS[name].format(made)
        assert "types:" not in text
        assert "were cast" not in text


@pytest.mark.parametrize("kind", get_args(get_type_hints(Mismatch)["kind"]))
@pytest.mark.parametrize("formatter", FORMATTERS.values(), ids=FORMATTERS)
def test_every_kind_of_mismatch_has_a_description(formatter, kind):
    assert formatter.format(incorrect(Mismatch(kind, "[1]", "this", "that"), passed=1))


def test_structured_says_why_a_correct_kernel_has_no_speedup() -> None:
    reason = "not_recorded: candidate.py:12: the call waits for the device"
    text = Structured().format(make_turn(evaluation=make_evaluation(not_timed=reason)))
    assert f"Speedup: none, {reason}." in text
