"""Sources that defeat the parser are no candidates; others are checked in a bounded number of steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.checkers import Candidate, EmbeddedSource, Finding, SourceFacts
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.rules import SOURCE
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_triton.kernels import triton_facts
from kernelrl_testing.core import extract_file

MODEL = "class ModelNew:\n    def forward(self, x):\n"
N = 60_000

REFUSED = {
    "a null byte": "x = 1\0",
    "100,000 brackets": "(" * 100_000,
    "100,000 signs": "-" * 100_000 + "1",
    "a long sum": "1" + "+1" * 60_000,
    "a chain of attributes": "a" + ".a" * 60_000,
    "300 levels of indentation": "".join(" " * depth + "if 1:\n" for depth in range(300)),
    "a literal of 5 MB": "x = '" + "a" * 5_000_000 + "'",
    "200,000 lines": "x = 1\n" * 200_000,
}
TOO_LONG = MODEL + f"        a = b{'.c' * 150}\n" * 500
BUSY = {
    "assignments": MODEL + "        pass\n" + "a=1\n" * (N // 4),
    "one name computed": MODEL + "        x = x.relu()\n" * (N // 21),
    "aliases": MODEL + "".join(f"        a{i} = a{i + 1}\n" for i in range(N // 22)),
    "nested functions": "".join(" " * i + f"def f{i}():\n" for i in range(90)) + (" " * 90 + "f0(x)\n") * (N // 97),
    "nested handlers": MODEL
    + "".join(" " * (8 + i) + line for i in range(18) for line in ("try:\n", " x\n")[:1])
    + " " * 26
    + "x\n"
    + "".join(" " * (8 + i) + "except ValueError:\n" + " " * (9 + i) + "x\n" for i in reversed(range(18))),
}
CPP = (
    "/*",
    'R"x(',
    '"',
    '\\"',
    "\\",
    "at::",
    "at::mm(",
    "at ",
    " ",
    "{",
    "'",
    "1'",
    "cublas",
    "a",
    ".mm(",
    "cublasGemm(",
)


def check(source: str, facts: SourceFacts | None = None) -> list[Finding]:
    candidate = Candidate(source, "triton", facts=SourceFacts() if facts is None else facts)
    return list(SourceRules(SourceRulesConfig()).check(candidate, Task("test", ""), None))


@pytest.mark.parametrize("name", REFUSED)
def test_a_source_that_defeats_the_parser_is_no_candidate_and_does_not_stop_a_checker(name: str) -> None:
    source = f"class ModelNew: pass\n{REFUSED[name]}"
    assert extract_file(source, fences=(), backend="triton").candidate is None
    assert {finding.rule for finding in check(source, triton_facts(source))} <= {"unreadable_source", "no_kernel"}


def test_a_source_that_takes_too_many_steps_is_rejected() -> None:
    stated = {rule.id for rule in SOURCE if rule.stated}
    assert "hidden_source" in {found.rule for found in check(TOO_LONG)} & stated


@pytest.mark.parametrize("name", BUSY)
def test_a_source_that_keeps_a_reader_busy_is_read(name: str) -> None:
    compile(BUSY[name], name, "exec")
    assert "hidden_source" not in {finding.rule for finding in check(BUSY[name])}


def test_an_error_in_the_python_is_a_note_because_the_build_reports_it() -> None:
    assert [(found.rule, found.severity.value) for found in check("def f(")] == [("unreadable_source", "note")]
    assert [found.rule for found in check("x = '\ud800'")] == ["unreadable_source"]


@pytest.mark.parametrize("text", CPP)
def test_much_cpp_is_searched_in_a_time_that_grows_with_its_length(text: str) -> None:
    source = EmbeddedSource("cuda", text * (190_000 // len(text)), 1)
    check("x = 1\n", SourceFacts(embedded=(source,)))


def test_cpp_beside_the_file_has_no_excerpt() -> None:
    facts = SourceFacts(embedded=(EmbeddedSource("cuda", "return at::mm(a, b);\n" * 5, 99),))
    assert "library_compute" in {finding.rule for finding in check("x = 1\n", facts)}


_PIECES = st.sampled_from(
    [
        *(
            "x",
            "self",
            ".",
            "(",
            ")",
            "[",
            "]",
            "=",
            "==",
            "\n",
            "    ",
            ":",
            "'''",
            '"',
            "#include <a>\n",
            "at::",
            "mm",
        ),
        *("class ModelNew(nn.Module):\n", "    def forward(self, x):\n", "        return ", "torch", "data_ptr()", "{"),
        *("if ", "static ", "/*", "*/", 'R"(', ')"', "\\", "\0", "\ud800", "import torch\n", "}", ";", "try:\n"),
        *("f'{", "lambda: ", "global x\n", "import a as ", "from . import b\n", "@", "getattr(", "__global__ ", "id("),
    ]
)


@given(st.one_of(st.text(max_size=300), st.lists(_PIECES, max_size=40).map("".join)))
def test_any_text_is_checked_without_an_exception(text: str) -> None:
    check(text)
    check(f"{MODEL}        return x\nS = {text!r}\n", SourceFacts(embedded=(EmbeddedSource("cpp", text, 3),)))
