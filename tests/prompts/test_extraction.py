"""One reading of every reply."""

from __future__ import annotations

import ast
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrl_core.prompts.extraction import MAX_REPLY_CHARACTERS, canonical_source, extract, extract_file
from kernelrl_core.sources.syntax import MAX_SOURCE_CHARACTERS
from kernelrl_core.sources.thinking import continuation_after, open_think_tag, split_thinking
from kernelrl_core.types import sha256_text

MODEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
DRAFT = "class ModelNew:\n    draft = True\n"
NESTED = 'class ModelNew:\n    """Usage:\n\n```python\nclass ModelNew: ...\n```\n\n<KERNEL>\nno\n</KERNEL>\n"""\n'


def read(reply, **options):
    return extract(reply, backend="triton", **options)


def source(reply, **options):
    candidate = read(reply, **options).candidate
    return None if candidate is None else candidate.source


@pytest.mark.parametrize(
    "tag", ["python", "Python", "py", "triton", "TRITON", "cuda", "c++", "C++", "cpp", "hip", "", "python title=a.py"]
)
@pytest.mark.parametrize("wrap", ["{}", "<KERNEL>\n{}\n</KERNEL>", "Text.\n\n{}\n\nMore text."])
def test_tag_is_understood_and_never_leaks(tag, wrap):
    assert source(wrap.format(f"```{tag}\n{MODEL}```")) == MODEL


@pytest.mark.parametrize(
    ("reply", "expected"),
    {
        "tilde fence": (f"~~~python\n{MODEL}~~~", MODEL),
        "long fence": (f"`````python\n{MODEL}`````", MODEL),
        "CRLF": (f"```python\n{MODEL}```\n".replace("\n", "\r\n"), MODEL.rstrip().replace("\n", "\r\n") + "\n"),
        "bare tags": (f"<KERNEL>\n{MODEL}</KERNEL>", MODEL),
        "bare tags with the language": (f"<KERNEL>triton\n{MODEL}</KERNEL>", MODEL),
        "language on its own line": (f"```\npython\n{MODEL}```", MODEL),
        "fence on the line of the tag": (f"<KERNEL>```python\n{MODEL}```</KERNEL>", MODEL),
        "fence after a colon": (f"The code: ```python\n{MODEL}```", MODEL),
        "indented fence": ("- item\n  ```python\n  class ModelNew:\n      pass\n  ```", "class ModelNew:\n    pass\n"),
        "nested fence in a docstring": (f"```python\n{NESTED}```", NESTED),
        "nested fence in bare tags": (f"<KERNEL>\n{NESTED}</KERNEL>", NESTED),
        "constants before the imports": (f"```python\nN = 4\n{MODEL}```", f"N = 4\n{MODEL}"),
        "analysis fence first": (f"```\nfirst x, then y\n```\n```python\n{MODEL}```", MODEL),
        "last of several": (f"```python\n{DRAFT}```\n```python\n{MODEL}```", MODEL),
        "incomplete last": (f"```python\n{MODEL}```\n```python\nprint(1)\n```", MODEL),
        "tags beat a later fence": (f"<KERNEL>\n```python\n{MODEL}```\n</KERNEL>\n```python\n{DRAFT}```", MODEL),
        "empty tags lose": (f"<KERNEL></KERNEL>\n```python\n{MODEL}```", MODEL),
        "tags without ModelNew lose": (f"<KERNEL>\n```python\nx = 1\n```\n</KERNEL>\n```python\n{MODEL}```", MODEL),
        "draft without an end": (f"```python\nclass ModelNew(\nno, again\n```python\n{MODEL}```", MODEL),
        "fence closed by the tag": (f"<KERNEL>\n```python\n{MODEL}</KERNEL>", MODEL),
        "tag without an end": (f"<KERNEL>\n```python\n{MODEL}```\n", MODEL),
        "cut after a complete answer": (f"```python\n{MODEL}```\nAnd now", MODEL),
    }.values(),
)
def test_source_is_found(reply, expected):
    assert source(reply) == expected


@pytest.mark.parametrize(
    ("reply", "visible"),
    [
        (f"<think>```python\n{DRAFT}```</think>```python\n{MODEL}```", MODEL),
        (f"<think><KERNEL>\n{DRAFT}</KERNEL></think>```python\n{MODEL}```", MODEL),
        (f"```python\n{DRAFT}```</think>```python\n{MODEL}```", MODEL),
        (f"```python\n{DRAFT}\nhm</think>\n```python\n{MODEL}```", MODEL),
        (f"```python\n{MODEL}```\n<think>```python\n{DRAFT}```", MODEL),
        (f"<THINK>a<think>```python\n{DRAFT}```</think>b</think>```python\n{MODEL}```", MODEL),
        (f"<thinking>```python\n{DRAFT}```</thinking>no code", None),
        (f"<think>```python\n{DRAFT}```", None),
    ],
)
def test_draft_in_thinking_never_wins(reply, visible):
    assert source(reply) == visible
    assert "draft" in read(reply).thinking


def test_thinking_of_the_renderer_is_cut_and_returned():
    thought = f"I try\n```python\n{DRAFT}```"
    extraction = read(f"{thought}\n</think>\n```python\n{MODEL}```", thinking=thought)
    assert extraction.candidate.source == MODEL
    assert extraction.thinking == extraction.candidate.thinking == thought


def test_reply_in_parts():
    parts = [
        {"type": "thinking", "thinking": f"```python\n{DRAFT}```"},
        {"type": "text", "text": "Here:\n```python\n"},
        {"type": "text", "text": f"{MODEL}```"},
        {"type": "image"},
    ]
    extraction = read(parts)
    assert extraction.candidate.source == MODEL
    assert "draft" in extraction.thinking


@pytest.mark.parametrize(
    ("reply", "stop_reason", "problem", "words"),
    [
        ("", "stop", "no_code", "no code block"),
        ("I would write class ModelNew with care.", "stop", "no_code", "mentions"),
        (MODEL, "stop", "no_code", "mentions"),
        ("```\na plan\n```", "stop", "no_code", "no code block"),
        ("```python\nclass ModelNew:\n    def", "stop", "truncated", "not closed"),
        (f"<KERNEL>\n{MODEL}", "stop", "truncated", "not closed"),
        ("Let me think", "length", "truncated", "token limit"),
        ("<think>for ever", "stop", "truncated", "never ended"),
        ("```python\nclass ModelNew(:\n    pass\n```", "stop", "syntax", "Line 1"),
        ("<KERNEL>\nclass ModelNew:\nx = (\n</KERNEL>", "stop", "syntax", "Line 2"),
        ("```python\nclass ModelNew:\x00\n```", "stop", "syntax", "null"),
        ("```python\nclass ModelNew: pass\ud800\n```", "stop", "syntax", "surrogate"),
        ("```python\nclass Model:\n    pass\n```", "stop", "no_model", "ModelNew"),
        ("```python\ndef f():\n    class ModelNew: pass\n```", "stop", "no_model", "ModelNew"),
        ("```python\n# class ModelNew\n```", "stop", "no_model", "ModelNew"),
        ("```cuda\n__global__ void k() {}\n```", "stop", "no_model", "ModelNew"),
        ("x" * (MAX_REPLY_CHARACTERS + 1), "stop", "no_code", "at most"),
        (f"```python\nclass ModelNew:\n    x = '{'a' * MAX_SOURCE_CHARACTERS}'\n```", "stop", "syntax", "at most"),
    ],
)
def test_problem(reply, stop_reason, problem, words):
    extraction = read(reply, stop_reason=stop_reason)
    assert (extraction.candidate, extraction.problem) == (None, problem)
    assert words in extraction.message
    assert len(extraction.message) < 400


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000, "a" + ".b" * 40_000, "1+" * 40_000 + "1", "-" * 40_000 + "1", "+".join("a" * 300), "{" * 150],
)
def test_deep_nesting_is_a_syntax_problem(expression):
    extraction = read(f"```python\nclass ModelNew: pass\nx = {expression}\n```")
    assert extraction.problem == "syntax"


@pytest.mark.parametrize(
    "unit",
    [
        "```\n",
        "```python\n",
        "<KERNEL>",
        "<KERNEL></KERNEL>",
        "~~~ ",
        "`",
        "<think>",
        "</think>",
        "<SUMMARY>",
        "\n",
        " ",
        " " * 500 + "```",
        "```python\nclass ModelNew: (\n```\n",
        "<KERNEL>\n```python\nclass ModelNew\n",
    ],
)
def test_hostile_text_takes_bounded_time(unit):
    reply = unit * (300_000 // len(unit))
    started = time.process_time()
    read(reply)
    assert time.process_time() - started < 5


def test_summary_is_captured_outside_code():
    code = "class ModelNew:\n    text = '<SUMMARY>no</SUMMARY>'\n"
    extraction = read(f"```python\n{code}```\n<SUMMARY>\nFused it.\n</SUMMARY>")
    assert extraction.summary == extraction.candidate.summary == "Fused it."
    assert read(f"```python\n{code}```").summary == ""


def test_fences_of_the_backend_are_accepted():
    reply = f"```tilelang\n{MODEL}```"
    assert source(reply) is None
    assert source(reply, fences=("TileLang",)) == MODEL


@pytest.mark.parametrize("text", [MODEL, "\ufeff" + MODEL, MODEL.rstrip(), f"Here:\n```python\n{MODEL}```"])
def test_file_is_source_or_reply(text):
    assert extract_file(text, backend="triton").candidate.source == MODEL


@pytest.mark.parametrize(
    ("text", "problem"), [("x = 1\n", "no_model"), ("class ModelNew(:\n", "syntax"), ("\x00\x01", "syntax")]
)
def test_unusable_file(text, problem):
    assert extract_file(text, backend="triton").problem == problem


@pytest.mark.parametrize(
    ("rendered", "opening"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>\n"),
        ("Assistant:<Thinking>", "<Thinking>"),
        ("<think>\n\n</think>\n\n", ""),
        ("Begin with <think>.<|im_end|>\n<|im_start|>assistant\n", ""),
        ("", ""),
    ],
)
def test_a_think_tag_at_the_end_of_a_prompt_opens_the_reply(rendered, opening):
    assert open_think_tag(rendered) == opening


@pytest.mark.parametrize(
    ("opening", "whole", "behind"),
    [
        ("", "answer", "answer"),
        ("<think>\n", "<think>\nhm\n</think>\nanswer", "hm\n</think>\nanswer"),
        ("<think>\n", "<think>hm</think>answer", "hm</think>answer"),
        ("<think>\n", "hm</think>answer", "hm</think>answer"),
        ("<think>\n", "answer", "\n</think>\n\nanswer"),
        ("Sure: ", "answer", "answer"),
        ("Sure: ", "Sure: answer", "answer"),
    ],
)
def test_what_is_said_behind_an_opening_makes_the_whole_reply(opening, whole, behind):
    assert continuation_after(opening, whole) == behind
    if opening.startswith("<think>"):
        assert split_thinking(opening + behind)[0].strip() == "answer"


def test_split_thinking():
    assert split_thinking("<think>a</think>b") == ("b", "a")
    assert split_thinking("ab", "a") == ("b", "a")


def _is_python(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return "<think" not in text.lower() and "</think" not in text.lower()


LINES = st.lists(
    st.sampled_from(
        [
            "# a comment",
            "N = 4",
            '"""\n```\ncode\n```\n"""',
            "'''\n```python\nclass ModelNew: 1\n```\n'''",
            "import os",
            "x = '''\n~~~\n'''",
            "s = '</KERNEL>'",
            "t = '''\n<KERNEL>\n</KERNEL>\n'''",
            "def f():\n\treturn '`'",
            "",
            "é = 'ü'",
            '"""\n</KERNEL>\n"""',
            "u = '<SUMMARY>'",
        ]
    ),
    max_size=6,
)
SOURCES = st.builds(
    lambda a, b, end: "\n".join([*a, "class ModelNew:", "    pass", *b]) + end,
    LINES,
    LINES,
    st.sampled_from(["", "\n"]),
).filter(_is_python)
PROSE = st.sampled_from(["", "Here it is.\n\n", "First:\n```\nanalysis\n```\n\n", "<think>```python\nx\n</think>\n"])


@given(
    code=SOURCES,
    before=PROSE,
    after=st.sampled_from(["", "\n\nDone.", "\n<SUMMARY>s</SUMMARY>"]),
    tag=st.sampled_from(["python", "py", "Triton", "cuda", "c++", "hip", ""]),
    fence=st.sampled_from(["```", "````", "~~~", "~~~~~"]),
    wrapper=st.sampled_from(["{}", "<KERNEL>\n{}\n</KERNEL>", "<KERNEL>{}</KERNEL>"]),
)
@settings(max_examples=300, deadline=None)
def test_any_source_in_any_wrapper_comes_back(code, before, after, tag, fence, wrapper):
    code = canonical_source(code)
    found = source(before + wrapper.format(f"{fence}{tag}\n{code}{fence}") + after)
    assert found == code
    assert sha256_text(found) == sha256_text(code)


@given(code=SOURCES, before=PROSE)
@settings(max_examples=100, deadline=None)
def test_any_source_in_bare_tags_comes_back(code, before):
    code = canonical_source(code)
    assert source(f"{before}<KERNEL>\n{code}</KERNEL>") == code
    assert extract_file(code, backend="triton").candidate.source == code


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "```",
                "```python\n",
                "~~~\n",
                "\n",
                "<KERNEL>",
                "</KERNEL>",
                "<think>",
                "</think>",
                "class ModelNew: pass\n",
                "<SUMMARY>",
                "</SUMMARY>",
                "\x00",
                "'''",
                "(",
                "\r",
            ]
        ),
        st.text(max_size=8),
    ),
    max_size=30,
)


@given(PIECES.map("".join), st.sampled_from(["stop", "length"]), st.none() | st.text(max_size=5))
@settings(max_examples=400, deadline=None)
def test_never_raises_and_reads_one_thing(text, stop_reason, thinking):
    extraction = read(text, stop_reason=stop_reason, thinking=thinking)
    assert (extraction.candidate is None) == bool(extraction.problem)
    assert bool(extraction.problem) == bool(extraction.message)
    extract_file(text, backend="triton")
