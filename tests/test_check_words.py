"""The word check reads prose and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_words.py"
spec = importlib.util.spec_from_file_location("check_words", SCRIPT)
assert spec is not None
assert spec.loader is not None
check_words = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_words)

PATTERNS = check_words.phrases(check_words.PHRASES.read_text())


def found(kind: str, text: str) -> list[str]:
    prose = check_words.PROSE[kind](text)
    return [match.group() for pattern, _ in PATTERNS for match in pattern.finditer(prose)]


@pytest.mark.parametrize(
    ("phrase", "better"),
    [
        ("masked lanes hold no number", "masked lanes are NaN"),
        ("the loop is told of it", "the loop receives it"),
        ("a mended file", "a repaired file"),
        ("samples were spoilt", "samples were lost to infrastructure errors"),
        ("replies are drawn at once", "replies are sampled concurrently"),
        ("replies drawn before", "replies sampled before"),
        ("a kernel who is slow", "a kernel that is slow"),
        ("What a kernel does is timed.", "The kernel is timed."),
        ("a hack that pays", "a hack that is rewarded"),
        ("too dear", "too expensive"),
        ("the weights of now", "the current weights"),
        ("it is left out", "it is excluded"),
        ("the cause stands at the end", "the cause is at the end"),
        ("the judge asks the runner", "the judge calls the runner"),
    ],
)
def test_every_listed_phrase_is_found_and_its_replacement_is_not(phrase: str, better: str) -> None:
    assert found(".md", phrase)
    assert not found(".md", better)


@pytest.mark.parametrize(
    "text",
    ["`nobody's`", "```\na hack that pays\n```\n", "    a hack that pays\n", '"a hack that pays"', "What is a run?"],
)
def test_code_spans_blocks_quotations_and_questions_are_no_prose(text: str) -> None:
    assert not found(".md", text)


@pytest.mark.parametrize(
    "text",
    [
        '"""It is left out."""\n',
        "x = 1  # it is left out\n",
        'raise ValueError(f"sample {x} is left out")\n',
        "def test_a_sample_is_left_out():\n    pass\n",
    ],
)
def test_docstrings_comments_messages_and_test_names_are_prose(text: str) -> None:
    assert found(".py", text) == ["left out"]


@pytest.mark.parametrize("text", ["left_out = asks(1)\n", 'KEY = "answer"\n', 'SOURCE = """\n# it is left out\n"""\n'])
def test_names_keys_and_embedded_programs_are_no_prose(text: str) -> None:
    assert not found(".py", text)


def test_a_hit_names_file_line_and_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("One.\n\nIt is left\nout.\n")
    assert list(check_words.hits(page, PATTERNS)) == ["page.md:3: 'left out'; write: excluded"]
