"""Extraction of candidates from replies."""

from __future__ import annotations

import ast
import re
import time
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelrl_core.prompts import extraction as extraction_module
from kernelrl_core.prompts.extraction import MAX_REPLY_CHARACTERS, canonical_source, extract, extract_file
from kernelrl_core.sources.chat_formats import CHAT_FORMATS, THINKING_MARKERS
from kernelrl_core.sources.thinking import continuation_after, open_think_tag, split_thinking
from kernelrl_core.types import sha256_text
from kernelrl_sources.syntax import MAX_SOURCE_CHARACTERS

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
def test_language_tag_is_accepted_and_not_part_of_the_source(tag, wrap):
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
        "cut after a complete candidate": (f"```python\n{MODEL}```\nAnd now", MODEL),
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
def test_draft_in_thinking_is_never_extracted(reply, visible):
    assert source(reply) == visible
    assert "draft" in read(reply).thinking


MARKERS = pytest.mark.parametrize("markers", THINKING_MARKERS, ids=lambda markers: markers.opening.strip())
THOUGHT = f"I try\n```python\n{DRAFT}```\n<KERNEL>\n{DRAFT}</KERNEL>\n"


@MARKERS
@pytest.mark.parametrize("opened", [True, False], ids=["opening marker", "opening marker in the prompt"])
@pytest.mark.parametrize("answer", [f"```python\n{MODEL}```", f"\n\nCode:\n<KERNEL>\n{MODEL}</KERNEL>\n", "No code."])
def test_thinking_of_every_format_is_removed(markers, opened, answer):
    extraction = read((markers.opening if opened else "") + THOUGHT + markers.closing + answer)
    found = extraction.candidate and extraction.candidate.source
    assert found == (None if answer == "No code." else MODEL)
    assert extraction.thinking == THOUGHT.strip()


@MARKERS
def test_thinking_of_every_format_without_an_end_has_no_code(markers):
    extraction = read(markers.opening + THOUGHT)
    assert (extraction.candidate, extraction.problem) == (None, "truncated")
    assert "did not end" in extraction.message


@MARKERS
def test_thinking_ends_at_a_closing_marker_of_its_own_format_only(markers):
    others = "".join(other.closing for other in THINKING_MARKERS if other is not markers)
    thinking = f"{markers.opening}{THOUGHT}{others}{THOUGHT}"
    assert source(f"{thinking}{markers.closing}```python\n{MODEL}```") == MODEL
    assert read(thinking).problem == "truncated"


@MARKERS
def test_thinking_separated_by_the_renderer_is_removed_with_the_markers_of_every_format(markers):
    code = f"{MODEL}    # {markers.closing.strip()}\n"
    extraction = read(f"{markers.opening}{THOUGHT}{markers.closing}\n```python\n{code}```", thinking=THOUGHT)
    assert extraction.candidate.source == code
    assert extraction.thinking == THOUGHT.strip()
    parts = [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": f"```python\n{code}```"}]
    assert source(parts) == code


@pytest.mark.parametrize(
    "reply",
    [
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{{}}<|return|>",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final <|constrain|>python"
        "<|message|>{}",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary<|message|>{THOUGHT}"
        "<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
        f"<|start|>assistant<|channel|>analysis to=python code<|message|>{THOUGHT}<|call|><|start|>python to=assistant"
        f"<|channel|>commentary<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{{}}",
        f"<|channel|>commentary to=functions.run <|constrain|>json<|message|>{THOUGHT}<|call|>"
        "<|start|>assistant<|message|>{}<|end|>",
        f"<|channel|>final<|message|>{{}}<|end|><|start|>assistant<|channel|>analysis<|message|>{THOUGHT}<|return|>",
        f"analysis{THOUGHT}assistantcommentary{THOUGHT}assistantfinal{{}}",
        f"<|content_thinking|>{THOUGHT}<|end_message|><|message_model|><|content_thinking|>{THOUGHT}<|end_message|>"
        "<|message_model|><|content_text|>{}<|end_message|><|content_model_end_sampling|>",
        f"<|open|>think<|sep|>{THOUGHT}<|close|>think<|sep|>\n<|open|>response<|sep|>{{}}<|close|>response<|sep|>",
        f"<|channel>thought\n<channel|>Plan: <|channel>{THOUGHT}<channel|>{{}}<turn|>",
        f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{{}}<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        f"<think>{THOUGHT}</think>\n<answer>\n{{}}</answer><|eos|>",
    ],
)
def test_channels_and_wrappers_of_the_visible_text(reply):
    assert source(reply.format(f"\n```python\n{MODEL}```")) == MODEL
    assert source(reply.format("No code.")) is None


@pytest.mark.parametrize("end", sorted({end for row in CHAT_FORMATS for end in row.ends}))
@pytest.mark.parametrize(
    "reply",
    [
        "```python\n{}```{}",
        "```python\n{}``` {}\n",
        "~~~~python\n{}~~~~{}\r\n",
        "<KERNEL>\n```python\n{}```{}\n</KERNEL>",
        "<KERNEL>\n```python\n{}```\n</KERNEL>{}",
        "<KERNEL>\n{}</KERNEL>{}",
        "```python\nx = 1\n```{1}\n```python\n{0}```{1}{1}",
        "```text\nx = 1\n```{1}\n```\n{0}```{1}\nmore",
    ],
)
def test_end_of_turn_after_a_fence_neither_hides_it_nor_is_code(reply, end):
    assert source(reply.format(MODEL, end)) == MODEL


def test_end_of_turn_within_code_is_code():
    code = f'{MODEL}    s = """\n<|im_end|>\n```<|im_end|>\n</s>\n"""\n'
    assert source(f"```python\n{code}```<|im_end|>") == code
    assert read(f"```python\n{MODEL}<|im_end|>").problem == "truncated"


@MARKERS
@pytest.mark.parametrize("before", [f"<think>{THOUGHT}</think>", f"{THOUGHT}[/THINK]"], ids=["opened", "not opened"])
@pytest.mark.parametrize(
    "code",
    [
        "# {} and {}\n",
        "# {1}\n# {0}\n",
        "x = '{}{}'\n",
        'x = r"\\\\"  # {1}\n',
        'x = "\\"{1}"\n',
        '"""\n{1}\n"""\n',
        "'''\n```python\nx\n```\n'''\n# {1}\n",
        'x = """\n// it\'s {0}\n/* {1} */\n"""\n',
        "x = f'{{1}}'  # it's {1}\n",
    ],
)
def test_markers_in_comments_and_strings_after_thinking_are_code(markers, before, code):
    code = code.format(markers.opening.strip(), markers.closing) + MODEL
    for wrapper in ("```python\n{}```", "<KERNEL>\n{}</KERNEL>", "<KERNEL>```\n{}```</KERNEL>"):
        assert source(before + wrapper.format(code)) == code


@MARKERS
@pytest.mark.parametrize("line", ["// {}\n", "/* {}\n*/\n", 'const char* s = "{}";\n', "'\"'; // {}\n"])
def test_markers_in_another_code_block_after_thinking_are_code(markers, line):
    block = "```cuda\n" + line.format(markers.closing) + "```\n"
    assert source(f"<think></think>{block}```python\n{MODEL}```") == MODEL


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        # Nothing shows whether a first closing marker in a comment ends thinking, and a draft must not be judged.
        (f"```python\n{DRAFT}# so</think>\n```\n{MODEL}```", MODEL),
        (f"```python\n{DRAFT}# so</think>\n```", None),
        # Code that names both tags shows that it is not thinking.
        (f"```python\n{MODEL}# <think> and </think>\n```", f"{MODEL}# <think> and </think>\n"),
        (f"```python\n{MODEL}# <think>\n```", f"{MODEL}# <think>\n"),
        # Neither a comment nor a string, or not in a closed block.
        (f"</think>```python\n{DRAFT}\n</think>\n```python\n{MODEL}```", MODEL),
        (f"</think>```python\n{MODEL}```\n# <think>\n```python\n{DRAFT}```", MODEL),
        (f"</think># <think>\n```python\n{DRAFT}```", None),
        (f"</think>```python\n{DRAFT}# </think>\n", None),
        # An unfinished string does not hide the markers after its block.
        (f"</think>```python\nx = '''\n```\n<think>\n```python\n{DRAFT}```\n'''</think>```python\n{MODEL}```", MODEL),
        (f"</think>```\nit's\n```\n<think>it's\n```python\n{DRAFT}```\n</think>```python\n{MODEL}```", MODEL),
        (f"</think>It's ```x``` and ```\n<think>'\n```python\n{DRAFT}```\n</think>```python\n{MODEL}```", MODEL),
        (f"</think>In <KERNEL> tags it's <think>it's ```python\n{DRAFT}```</think><KERNEL>{MODEL}</KERNEL>", MODEL),
    ],
)
def test_markers_that_are_code_and_markers_that_are_not(reply, expected):
    assert source(reply) == expected


def test_thinking_separated_by_the_renderer_is_removed_and_returned():
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
        ("<think>for ever", "stop", "truncated", "did not end"),
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
    causes = ("The code is nested too deeply", "too many nested", "never closed")
    assert any(cause in extraction.message for cause in causes)


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
        "<think></think>```a\n",
        "</think>```a\n'''",
        "</think># <think>\n```\n",
        "<|channel|>",
        "<|start|>" + "a" * 90,
        "/*",
        '"\\',
        "'''\n```\n",
        "```<|im_end|>\n",
    ],
)
def test_adversarial_text_takes_bounded_time(unit):
    reply = unit * (300_000 // len(unit))
    started = time.process_time()
    read(reply)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("unit", ["```\n", "~~~ ", "`", "<KERNEL>", "# <think>\n", "'", '\\"', "/*", "```a\n'''", " "])
@pytest.mark.parametrize("end", ["x`<think>", "\n# <think>\n```\n"])
def test_adversarial_text_before_a_marker_takes_bounded_time(unit, end):
    reply = "</think>```python\n" + unit * (100_000 // len(unit)) + end
    started = time.process_time()
    read(reply)
    assert time.process_time() - started < 5


def test_summary_is_extracted_outside_code_only():
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


def test_the_class_may_have_another_name_besides():
    source = "class Softmax:\n    pass\n\n\nModelNew = Softmax\n"
    assert extract_file(source, backend="triton").candidate.source == source
    assert read(f"```python\n{source}```").candidate.source == source


def test_an_example_of_use_is_no_candidate():
    reply = f"```python\n{MODEL}```\nUse it so:\n```python\nfrom kernel import ModelNew\nmodel = ModelNew()\n```"
    assert source(reply) == MODEL


@pytest.mark.parametrize(
    ("text", "problem"), [("x = 1\n", "no_model"), ("class ModelNew(:\n", "syntax"), ("\x00\x01", "no_code")]
)
def test_unusable_file(text, problem):
    assert extract_file(text, backend="triton").problem == problem


FIRST = "class ModelNew:\n    first = True\n"
CRLF = MODEL.rstrip().replace("\n", "\r\n") + "\n"


@pytest.mark.parametrize(
    ("reply", "expected"),
    {
        "last of several in tags": (f"<KERNEL>\n{FIRST}</KERNEL>\n<KERNEL>\n{MODEL}</KERNEL>", MODEL),
        "tags after a fence": (f"```python\n{FIRST}```\n<KERNEL>\n{MODEL}</KERNEL>", MODEL),
        "bare tags before a fence": (f"<KERNEL>\n{MODEL}</KERNEL>\n```python\n{FIRST}```", MODEL),
        "bare tags between fences": (
            f"<KERNEL>\n```python\n{FIRST}```\n</KERNEL>\n<KERNEL>\n{MODEL}</KERNEL>\n```python\n{FIRST}```",
            MODEL,
        ),
        "two fences in one pair of tags": (
            f"<KERNEL>\n```python\n{FIRST}```\n```python\n{MODEL}```\n</KERNEL>\n```python\n{FIRST}```",
            MODEL,
        ),
        "fence in tags after a closing tag in the code of a candidate": (
            f"<KERNEL>\n```python\n{FIRST}    s = '</KERNEL>'\n```\n```python\n{MODEL}```\n</KERNEL>\n"
            f"```python\n{FIRST}```",
            MODEL,
        ),
        "closing tag directly after the fence": (
            f"<KERNEL>```python\n{MODEL}```</KERNEL>\n```python\n{FIRST}```",
            MODEL,
        ),
        "untagged fence after a fence that the tag closes": (
            f"<KERNEL>\n```python\nx = 1\n</KERNEL>\n```\n{MODEL}```",
            MODEL,
        ),
        "tags after tags without a candidate": (f"<KERNEL>\nx = 1\n</KERNEL>\n<KERNEL>\n{MODEL}</KERNEL>", MODEL),
        "tags after tags without an end": (f"<KERNEL>\nno\n<KERNEL>\n{MODEL}</KERNEL>", MODEL),
        "CRLF in bare tags": (f"<KERNEL>\r\n{CRLF}</KERNEL>", CRLF),
        "bare tags on one line": ("<KERNEL>class ModelNew: pass</KERNEL>", "class ModelNew: pass\n"),
        "untagged fence on the line of the tag": (f"Code: <kernel>```\n{MODEL}```</kernel>", MODEL),
        "untagged fence after prose": (f"Code: ```\n{MODEL}```", None),
        "fence with a title after prose": (f"Code: ```python title\n{MODEL}```", None),
        "fence of another language after prose": (f"Code: ```text\n{MODEL}```", None),
        "fence of another language": (f"```text\n{MODEL}```", None),
        "fence in a fence of another language": (f"```markdown\n```python\n{MODEL}```\n```", MODEL),
        "fence after a closed fence of another language": (f"```text\nx\n```\n```\n{MODEL}```", MODEL),
        "shorter fences in a string": (f"````python\n{NESTED}````", NESTED),
        "other fences in a string": (f"~~~python\n{NESTED}~~~", NESTED),
        "indented by three": (
            "- item\n   ```python\n   class ModelNew:\n       pass\n  x = 1\n   ```",
            "class ModelNew:\n    pass\nx = 1\n",
        ),
        "indented by a tab": ("\t```python\n\tclass ModelNew:\n\t    pass\n\t```", "class ModelNew:\n    pass\n"),
        "indented by 60": (f"a\n{' ' * 60}```\n{' ' * 60}class ModelNew: pass\n```", "class ModelNew: pass\n"),
        "indented by 80": (f"a\n{' ' * 80}```\nclass ModelNew: pass\n```", None),
        "indented after two lines": (
            "a\nb\n  ```python\n  class ModelNew: pass\n  ```",
            "class ModelNew: pass\n",
        ),
        "untagged fence after a letter": (f"a\nX```\n{MODEL}```", None),
        "fence with a language after a letter": (f"a\nX```python\n{MODEL}```", MODEL),
        "end of a fence of another language after prose": (f"Code: ```text\n```\n{MODEL}```", MODEL),
        "closing tag within a line does not end a fence": (
            f"<KERNEL>\n```python\nx = '</KERNEL>'\n```\n{MODEL}```",
            None,
        ),
        "blank first line": (f"```\n\n{MODEL}```", f"\n{MODEL}"),
        "language word in a fence with a language": (f"```python\ntriton\n{MODEL}```", f"triton\n{MODEL}"),
        "language on its own line, with spaces": (f"```\n Python \n{MODEL}```", MODEL),
        "nearest closing tag within a line": ("<KERNEL>class ModelNew: s = '</KERNEL>'</KERNEL>", None),
        "closing tag at the start of a line": (
            '<KERNEL>\nclass ModelNew:\n    """\n</KERNEL>\n"""\n    s = "</KERNEL>"\n</KERNEL>',
            'class ModelNew:\n    """\n</KERNEL>\n"""\n    s = "</KERNEL>"\n',
        ),
        "invalid escape in a string": ("```python\nclass ModelNew: s = '\\d'\n```", "class ModelNew: s = '\\d'\n"),
    }.values(),
)
def test_choice_and_limits_of_blocks(reply, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert source(reply) == expected


@pytest.mark.parametrize(
    "body",
    [
        "if x:\n    class ModelNew: pass\n",
        "if x:\n    pass\nelse:\n    class ModelNew: pass\n",
        "if x:\n    pass\nelif y:\n    class ModelNew: pass\n",
        "try:\n    class ModelNew: pass\nfinally:\n    pass\n",
        "try:\n    pass\nexcept ImportError:\n    pass\nexcept OSError:\n    class ModelNew: pass\n",
        "try:\n    pass\nexcept OSError:\n    pass\nelse:\n    class ModelNew: pass\n",
        "try:\n    pass\nfinally:\n    class ModelNew: pass\n",
        "with x:\n    if y:\n        class ModelNew: pass\n",
        "with x:\n    y = 1\nif x:\n    y = 1\nclass ModelNew: pass\n",
        "class Other: pass\n\nclass ModelNew: pass\n\nx = 1\n",
    ],
)
def test_class_in_a_branch_at_module_level_is_complete(body):
    assert source(f"```python\n{body}```") == body


@pytest.mark.parametrize(
    "body",
    [
        "for x in y:\n    class ModelNew: pass\n",
        "if x:\n    y = 'class ModelNew'\nelse:\n    z = 1\n",
        "def ModelNew(): 'class ModelNew'\n",
        "class ModelNewer: 'class ModelNew'\n",
    ],
)
def test_class_elsewhere_is_incomplete(body):
    assert read(f"```python\n{body}```").problem == "no_model"


@pytest.mark.parametrize(("lines", "found"), [(63, True), (64, False)])
@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("```", "```python\n{}```"),
        ("</KERNEL>", "<KERNEL>\n{}</KERNEL>"),
        ("</KERNEL>", "<KERNEL>\n```python\n{}</KERNEL>"),
    ],
)
def test_64_ends_are_tried_for_one_block(line, reply, lines, found):
    """The end of the candidate comes after all lines in its string that look like one."""
    code = 'class ModelNew:\n    """\n' + f"{line}\n" * lines + '"""\n'
    assert (source(reply.format(code)) == code) is found


@pytest.mark.parametrize(("spare", "expected"), [(1, MODEL), (0, FIRST), (-len(MODEL) - 500, None)])
@pytest.mark.parametrize("reply", ["```python\n{}```\n```python\n{}```", "<KERNEL>{}</KERNEL><KERNEL>{}</KERNEL>"])
def test_budget_of_parsed_characters(monkeypatch, reply, spare, expected):
    """A parse costs 500 and its characters, and must leave more than 0."""
    budget = len(FIRST) + 500 + len(MODEL) + 500 + spare
    monkeypatch.setattr(extraction_module, "_MAX_READ_CHARACTERS", budget)
    assert source(reply.format(FIRST, MODEL)) == expected


@pytest.mark.parametrize(("spare", "problem"), [(1, "syntax"), (0, "no_code")])
@pytest.mark.parametrize(
    ("reply", "cost"),
    [("Code:\n```python\nx = = 1\n```", 508 + 508), ("Code: <KERNEL>x = = 1</KERNEL>", 508 + 507)],
)
def test_budget_includes_the_parse_that_explains_a_failure(monkeypatch, reply, cost, spare, problem):
    """8 characters with the newline. The first parse looks for a candidate, the second explains why there is none."""
    monkeypatch.setattr(extraction_module, "_MAX_READ_CHARACTERS", cost + spare)
    assert read(reply).problem == problem


def test_longest_source_and_longest_reply():
    head = "class ModelNew: pass\n#"
    filled = head + "x" * (MAX_SOURCE_CHARACTERS - len(head) - 1) + "\n"
    assert len(filled) == MAX_SOURCE_CHARACTERS
    assert source(f"```python\n{filled}```") == filled
    assert read(f"```python\n{filled[:-1]}x\n```").problem == "syntax"
    end = f"\n```python\n{MODEL}```"
    reply = "x" * (MAX_REPLY_CHARACTERS - len(end)) + end
    assert source(reply) == MODEL
    assert source(f"x{reply}") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  x = 1 \t\f\r\n\n", "  x = 1\n"),
        ("x\u00a0", "x\u00a0\n"),
        ("x\v\n", "x\v\n"),
        ("\n\nx", "\n\nx\n"),
        ("", "\n"),
    ],
)
def test_canonical_source_changes_trailing_white_space_only(text, expected):
    assert canonical_source(text) == expected


def test_thinking_of_parts_and_of_the_text_is_joined():
    parts = [
        {"type": "thinking", "thinking": "a"},
        {"type": "thinking", "thinking": "b"},
        {"type": "text", "text": "<think> c </think>One <SUMMARY> s </SUMMARY>"},
        {"type": "text"},
        {"text": "without a type"},
        {"type": "text", "text": "two"},
    ]
    failed = read(parts)
    assert (failed.candidate, failed.problem) == (None, "no_code")
    assert (failed.thinking, failed.summary) == ("a\n\nb\n\nc", "s")
    found = read([*parts, {"type": "text", "text": f"\n```python\n{MODEL}```"}])
    assert (found.candidate.source, found.candidate.backend) == (MODEL, "triton")
    assert (found.problem, found.message) == ("", "")
    assert found.thinking == found.candidate.thinking == "a\n\nb\n\nc"
    assert found.summary == found.candidate.summary == "s"
    assert read([]).thinking == read("x").thinking == read([{"type": "thinking"}]).thinking == ""


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [
                {"type": "text", "text": "```python\nclass Model"},
                {"type": "text"},
                {"type": "text", "text": "New: pass\n```"},
            ],
            True,
        ),
        ([{"type": "text", "text": "```python\nclass ModelNew:"}, {"type": "text"}, {"text": "pass\n```"}], False),
    ],
)
def test_text_parts_are_joined_without_a_separator(parts, expected):
    assert (source(parts) == "class ModelNew: pass\n") is expected


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<SUMMARY>a</SUMMARY> <summary> b\n</Summary>", "b"),
        ("<SUMMARY>a</SUMMARY></SUMMARY>", "a"),
        ("<SUMMARY>a<SUMMARY>b</SUMMARY>", "b"),
        ("</SUMMARY>a<SUMMARY>", ""),
        ("<SUMMARY>a", ""),
        (f"<SUMMARY>a</SUMMARY>\n```python\n{FIRST}```\n```python\n{FIRST}    s = '<SUMMARY>no</SUMMARY>'\n```", "a"),
        (f"```python\n{FIRST}    s = '<SUMMARY>no</SUMMARY>'\n```\n```python\n{FIRST}```", ""),
    ],
)
def test_last_closed_summary_outside_code(text, summary):
    assert read(text).summary == summary


@pytest.mark.parametrize(
    ("reply", "problem", "words"),
    [
        ("```python\nclass ModelNew:\n    pass\nx = = 1\n```", "syntax", "Line 3: invalid syntax: x = = 1"),
        ("```python\n= class ModelNew\n```", "syntax", "Line 1: invalid syntax: = class ModelNew"),
        # A block that names the class is explained first, then one in tags, then the last one.
        ("```python\nclass ModelNew(:\n```\n```python\nx = 1\n```", "syntax", "ModelNew(:"),
        ("```python\nclass ModelNew = 1\n```\n```python\nclass ModelNew = 2\n```", "syntax", ": class ModelNew = 2"),
        ("<KERNEL>\nclass ModelNew = 1\n</KERNEL>\n```python\nclass ModelNew = 2\n```", "syntax", "ModelNew = 1"),
        ("<KERNEL>\nclass ModelNew = 1\n</KERNEL>\n<KERNEL>\nclass ModelNew = 2\n</KERNEL>", "syntax", "ModelNew = 2"),
        ("<KERNEL>\n```python\nx = = 1\n```\n</KERNEL>", "syntax", "Line 1: invalid syntax: x = = 1"),
        ("<KERNEL>\nx = = 1\n</KERNEL>\n```python\ny = 1\n```", "syntax", "x = = 1"),
        ("<KERNEL>\nx = 1\n</KERNEL>\n```python\ny = = 1\n```", "no_model", "at module level"),
        ("```python\nx = = 1\n```\n```python\ny = 1\n```", "no_model", "at module level"),
        ("```python\nx = 1\n```\n```python\ny = = 1\n```", "syntax", "y = = 1"),
        ("```python3\nx = = 1\n```", "syntax", "x = = 1"),
        ("```py\nx = = 1\n```", "syntax", "x = = 1"),
        ("```triton\nx = = 1\n```", "syntax", "x = = 1"),
        ("```cuda\nx = = 1\n```", "no_model", "No code block is a Python file"),
        ("```\nx = = 1\n```", "no_code", "The reply has no code block"),
        ("```\nclass ModelNew = 1\n```", "syntax", "ModelNew = 1"),
        ("```text\nx = 1\n```", "no_code", "The reply has no code block"),
        ("<KERNEL>\n \n</KERNEL>", "no_code", "The reply has no code block"),
        ("<KERNEL></KERNEL>", "no_code", "The reply has no code block"),
        ("</KERNEL>", "no_code", "The reply has no code block"),
        ("<KERNEL>\n```text\nx\n```\n</KERNEL>", "syntax", "Line 1"),
        ("```text\nclass ModelNew: pass", "no_code", "The reply mentions the class `ModelNew`"),
        ("```python\nx", "truncated", "The code block is not closed"),
        ("<KERNEL>\nx = = 1\n</KERNEL>\n<KERNEL>", "truncated", "The code block is not closed"),
        ("<KERNEL>\n```python\nx = 1\n```\n", "no_model", "The code defines no class `ModelNew`"),
        ("<think>x", "truncated", "The thinking did not end"),
        (
            "<KERNEL>\n```python\nx = 1\n```\n</KERNEL>\n<KERNEL>\ny = = 1\n</KERNEL>",
            "syntax",
            "Line 1: invalid syntax: y = = 1",
        ),
        # Python counts the carriage returns as lines.
        ("```python\nclass ModelNew: pass\ry = 1\rx = = 1\n```", "syntax", "Line 3: invalid syntax"),
    ],
)
def test_problem_of_the_decisive_block(reply, problem, words):
    extraction = read(reply)
    assert (extraction.candidate, extraction.problem) == (None, problem)
    assert words in extraction.message


def test_excerpt_of_a_syntax_error_has_at_most_120_characters():
    message = read("```python\nclass ModelNew: pass\nx = = " + "1" * 200 + "\n```").message
    assert message.endswith(": x = = " + "1" * 114)
    nulls = read("```python\nclass ModelNew: pass\x00\n```").message
    assert "Line" not in nulls
    assert "null bytes" in nulls


def test_reply_that_ended_at_its_limit_is_truncated_unless_it_has_a_candidate():
    cut = read("```python\nx = = 1\n```", stop_reason="length")
    assert (cut.problem, cut.candidate) == ("truncated", None)
    assert "The reply was cut off" in cut.message
    assert read(f"```python\n{MODEL}```\nand", stop_reason="length").candidate.source == MODEL


def test_file_has_its_backend_and_accepts_fences_of_the_backend():
    assert extract_file(MODEL, backend="hip").candidate.backend == "hip"
    reply = f"```tilelang\n{MODEL}```"
    found = extract_file(reply, fences=("tilelang",), backend="tilelang").candidate
    assert (found.source, found.backend) == (MODEL, "tilelang")
    assert extract_file(reply, backend="tilelang").candidate is None


@pytest.mark.parametrize(
    ("text", "problem", "words"),
    [
        ("class ModelNew(:\n", "syntax", "Line 1: "),
        ("x = 1\n", "no_model", "The file defines no class `ModelNew`"),
        ("```python\nx = 1\n```", "no_model", "The code defines no class `ModelNew`"),
        ("```python\nclass ModelNew:\n", "truncated", "The code block is not closed"),
    ],
)
def test_problem_of_a_file(text, problem, words):
    extraction = extract_file(text, backend="triton")
    assert (extraction.candidate, extraction.problem) == (None, problem)
    assert words in extraction.message


IN_PROMPTS = [markers for markers in THINKING_MARKERS if markers.opening != "analysis"]


@pytest.mark.parametrize(
    ("rendered", "opening"),
    [
        *((f"<|user|>Hi<|assistant|>{markers.opening}", markers.opening) for markers in IN_PROMPTS),
        ("<|start|>assistant<|channel|>final<|message|>", ""),
        ("<|turn>model\n<|channel>thought\n<channel|>", ""),
        ("an analysis", ""),
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
        ("<think>\n", "[THINK]hm[/THINK]answer", "hm\n</think>\n\nanswer"),
        ("[THINK]", "<think>\nhm\n</think>\n\nanswer", "hm\n[/THINK]\n\nanswer"),
        ("[THINK]", "hm</think>answer", "hm\n[/THINK]\n\nanswer"),
        ("[THINK]", "hm[/THINK]answer", "hm[/THINK]answer"),
        ("[THINK]", "answer", "\n[/THINK]\n\nanswer"),
    ],
)
def test_prefill_and_continuation_form_the_reply(opening, whole, behind):
    assert continuation_after(opening, whole) == behind
    if opening != "Sure: ":
        assert split_thinking(opening + behind)[0].strip() == "answer"


@pytest.mark.parametrize("markers", IN_PROMPTS, ids=lambda markers: markers.opening.strip())
@pytest.mark.parametrize("reply", ["answer", "<think>hm</think>answer", "answer <think>hm</think>", "hm</think>answer"])
def test_a_continuation_has_the_markers_of_the_prompt(markers, reply):
    answer, thinking = split_thinking(markers.opening + continuation_after(markers.opening, reply))
    assert (answer.strip(), thinking) == ("answer", "hm" if "hm" in reply else "")


def test_split_thinking():
    assert split_thinking("<think>a</think>b") == ("b", "a")
    assert split_thinking("ab", "a") == ("b", "a")


def _is_python(text):
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


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
            "v = \"it's\"  # it's",
        ]
    ),
    max_size=6,
)
MARKED_LINES = st.lists(
    st.builds(
        lambda line, markers: line.format(markers.opening.strip(), markers.closing),
        st.sampled_from(
            [
                "# {}",
                "# it's {1}, not {0}",
                "a = '{1}'",
                'b = "{0} {1}" + """\\"{1}"""',
                '"""\n{1}\n"""',
                "'''\n/* {0}\n{1} */\n'''",
                "c = 1 // 2  # {}",
            ]
        ),
        st.sampled_from(THINKING_MARKERS),
    ),
    max_size=3,
)


def sources(lines):
    return st.builds(
        lambda a, b, end: "\n".join([*a, "class ModelNew:", "    pass", *b]) + end,
        lines,
        lines,
        st.sampled_from(["", "\n"]),
    ).filter(_is_python)


SOURCES = sources(LINES)
MARKED_SOURCES = sources(st.builds(lambda a, b, c: [*a, *b, *c], MARKED_LINES, LINES, MARKED_LINES))
DRAFTS = st.sampled_from(
    ["Hm.", f"It's\n```python\n{DRAFT}```\n", f"<KERNEL>\n{DRAFT}</KERNEL>", f"```python\n{DRAFT}'''\n"]
)
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
def test_any_source_in_any_wrapper_is_extracted(code, before, after, tag, fence, wrapper):
    code = canonical_source(code)
    found = source(before + wrapper.format(f"{fence}{tag}\n{code}{fence}") + after)
    assert found == code
    assert sha256_text(found) == sha256_text(code)


@given(
    code=MARKED_SOURCES,
    markers=st.sampled_from(THINKING_MARKERS),
    opened=st.booleans(),
    thought=DRAFTS,
    tag=st.sampled_from(["python", "cuda", ""]),
    fence=st.sampled_from(["```", "````", "~~~"]),
    wrapper=st.sampled_from(
        [
            "{block}",
            "<KERNEL>\n{block}\n</KERNEL>",
            "It's here:\n\n{block}\n\n# Done.",
            "<KERNEL>\n{code}</KERNEL>{end}",
        ]
    ),
    end=st.sampled_from(["", "<|im_end|>", "</s>", "<|return|>", " [EOS]"]),
)
@settings(max_examples=300, deadline=None)
def test_any_source_after_the_thinking_of_any_format_is_extracted(
    code, markers, opened, thought, tag, fence, wrapper, end
):
    code = canonical_source(code)
    thinking = (markers.opening if opened else "") + f"T {thought}" + markers.closing + "\n"
    block = f"{fence}{tag}\n{code}{fence}{end}"
    extraction = read(thinking + wrapper.format(block=block, code=code, end=end))
    assert extraction.candidate.source == code
    assert extraction.thinking == f"T {thought}".strip()


@given(code=SOURCES, before=PROSE)
@settings(max_examples=100, deadline=None)
def test_any_source_in_bare_tags_is_extracted(code, before):
    code = canonical_source(code)
    assert source(f"{before}<KERNEL>\n{code}</KERNEL>") == code
    assert extract_file(code, backend="triton").candidate.source == code


PIECES = st.lists(
    st.one_of(
        st.sampled_from([text for markers in THINKING_MARKERS for text in (markers.opening, markers.closing)]),
        st.sampled_from(
            [
                "# ",
                "/*",
                "'",
                '"""',
                "<|im_end|>",
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
def test_extract_never_raises_and_returns_candidate_or_problem(text, stop_reason, thinking):
    extraction = read(text, stop_reason=stop_reason, thinking=thinking)
    assert (extraction.candidate is None) == bool(extraction.problem)
    assert bool(extraction.problem) == bool(extraction.message)
    extract_file(text, backend="triton")


@given(PIECES, PIECES, PIECES, st.sampled_from(THINKING_MARKERS), DRAFTS)
@settings(max_examples=400, deadline=None)
def test_a_draft_in_thinking_is_never_extracted(before, after, answer, markers, draft):
    thought = f"T {''.join(before)}\n{draft}\n{''.join(after)}\n"
    assume(not re.search(markers.closing_pattern, thought))
    found = source(f"{markers.opening}{thought}{markers.closing}{''.join(answer)}")
    assert found is None or "draft" not in found
    assert read(f"{markers.opening}{thought}").problem == "truncated"
