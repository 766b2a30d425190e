"""Sources that defeat a parser, or are meant to keep it busy: an answer within a second, and never an exception."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelrl_core.sources.syntax import MAX_SOURCE_CHARACTERS
from kernelrl_core.types import Candidate, EmbeddedSource, Finding, SourceFacts, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.cpp_tokens import tokens
from kernelrl_plugin_checkers.source_rules import SourceRules

MODEL = "class ModelNew:\n    def forward(self, x):\n"
N = 60_000

UNREADABLE = {
    "null bytes": "x = 1\0",
    "parentheses": "(" * 100_000,
    "signs": "-" * 100_000 + "1",
    "a sum": "1" + "+1" * 60_000,
    "attributes": "a" + ".a" * 60_000,
    "calls": "f" + "()" * 60_000,
    "indentation": "".join(" " * depth + "if 1:\n" for depth in range(300)),
    "a long literal": "x = '" + "a" * 5_000_000 + "'",
    "many lines": "x = 1\n" * 200_000,
    "a lone surrogate": "x = '\ud800'",
    "no Python": "def f(",
}

BUSY = {
    "assignments": MODEL + "        pass\n" + "a=1\n" * (N // 4),
    "one name assigned and called": MODEL + "        x = x.f(x)\n" * (N // 19),
    "one name computed": MODEL + "        x = x.relu()\n" * (N // 21),
    "comparisons": "a" + "<a" * (N // 2),
    "chains": ("a" + ".a" * 150 + "\n") * (N // 302),
    "subscripts": ("a[" * 90 + "id(x)" + "]" * 90 + "\n") * (N // 276),
    "nested functions": "".join(" " * i + f"def f{i}():\n" for i in range(90)) + (" " * 90 + "f0(x)\n") * (N // 97),
    "nested branches": MODEL
    + "".join(" " * (8 + i) + "if self.n:\n" for i in range(85))
    + (" " * 93 + "return self.n\n") * (N // 80),
    "pointers": MODEL + "        a = x.data_ptr()\n        a == self.b\n" * (N // 46),
    "aliases": MODEL + "".join(f"        a{i} = a{i + 1}\n" for i in range(N // 22)),
    "strings": 'S = "#include <a>"\n' * (N // 18),
    **{
        f"C++ of {text!r}": f"S = r'''#include <a>\n{text * (N // len(text))}'''\n"
        for text in (
            *("/*", 'R"x(', '"', "\\", "at::", "at::mm(", " ", "#\n", "#define x /*", "{", "}", "static int a;", "<"),
            *("__global__ ", "__global__{", "__global__{a[", "static std::map<int, a> b; b[c.data_ptr()];", "'", "1'"),
        )
    },
    **{
        f"much C++ of {text!r}": f"S = r'''#include <a>\n{text * (190_000 // len(text))}'''\n"
        for text in (
            *("{", "{int a;", "a<", "a<b>(", "template<", "int a{}", "f(", "x{}", "x=0;", "a>", "x[", "a(b)", "a##"),
            *("void f(int a){", "{int x;}x;", "f(){", "typedef ", "decltype(", "namespace a{void f(){", "[[a"),
            *("#define a b\n", "#define f%d(x) x\n", "#if a\n", "#ifdef a\nint b;\n#endif\n", "M(x)"),
        )
    },
    "a long macro": "S = '''#include <a>\n#define F(a) " + "x a " * 45_000 + "\n'''\n",
    "many macros": "S = '''#include <a>\n"
    + "".join(f"#define m{i}(a) void a(int b) {{ n{i} }}\n" for i in range(4500))
    + "'''\n",
    "functions of one name": "S = '''#include <a>\n"
    + "".join(f"namespace n{i}{{void f(){{}}}}" for i in range(4500))
    + "void g(){"
    + "f();" * 5000
    + "}'''\n",
    "a long name of libraries in a macro": "S = '''#include <a>\n#define x " + "cblas_" * (N // 6) + "\n'''\n",
    "a long name that is no word": "S = '''#include <a>\n" + "cublasGemm" * (N // 10) + "$\n'''\n",
    "a long name in a kernel": "S = '''#include <a>\n__global__{ a[b] = " + "a" * N + " ; }\n'''\n",
    "places of notes": "S = \"#include <a>\\n\"'''\n" + "getenv(1);\n" * (N // 5) + "'''\n",
    "places of many notes": "S = '''#include <a>\n"
    + "".join(f"cublas{i}Gemm(1);\\\\x3b\n" for i in range(N // 12))
    + "'''\n",
    "C++ with escapes": 'S = "#include ' + r"at::mm(a);\n" * (N // 12) + '"\n',
}


def check(source: str, facts: SourceFacts | None = None) -> list[Finding]:
    candidate = Candidate(source, "cuda", facts=facts or SourceFacts())
    return list(SourceRules(SourceRulesConfig()).check(candidate, Task("test", ""), None))


def seconds_of_a_check(source: str) -> float:
    """Seconds of the processor; a neighbour on its core can double them, and then another try tells."""
    begin = time.process_time()
    check(source)
    return time.process_time() - begin


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_noted_within_a_second(name: str) -> None:
    assert any(seconds_of_a_check(UNREADABLE[name]) < 1.0 for _ in range(3))
    assert [finding.rule for finding in check(UNREADABLE[name])] == [
        "unread_source" if len(UNREADABLE[name]) > MAX_SOURCE_CHARACTERS else "unreadable_source"
    ]


@pytest.mark.parametrize("name", BUSY)
def test_a_source_that_keeps_a_reader_busy_is_answered_within_a_second(name: str) -> None:
    assert any(seconds_of_a_check(BUSY[name]) < 1.0 for _ in range(3))


def test_cpp_of_too_many_tokens_is_read_from_its_beginning_and_noted() -> None:
    source = "S = '''#include <a>\nat::mm(a, b);\n" + "{" * 190_000 + "'''\n"
    assert {"library_glue", "unread_source"} <= {finding.rule for finding in check(source)}


def test_reading_stops_in_the_same_place_each_time_and_says_so() -> None:
    branches = "".join(" " * (8 + i) + "if self.n:\n" for i in range(85))
    source = f"{MODEL}{branches}" + (" " * 93 + "return self.n\n") * 1300
    assert check(source) == check(source)
    assert {"unread_source": "suspect"}.items() <= {f.rule: f.severity.value for f in check(source)}.items()


def test_nested_handlers_do_not_keep_the_rest_from_being_read() -> None:
    lines = ("try:", "  x", "except ValueError:")
    nested = "".join(" " * (8 + 2 * depth) + f"{line}\n" for depth in range(18) for line in lines)
    source = f"import torch\n{MODEL}        y = torch.relu(x)\n{nested}" + (" " * 44 + "x;" * 12000)
    assert "library_compute" in {finding.rule for finding in check(source)}
    assert "unread_source" not in {finding.rule for finding in check(source)}


def test_a_name_that_continues_on_the_next_line_is_one_name_with_its_place() -> None:
    text = 'auto s = R"(a\\\n)"; // R"(\nreturn at::mat\\\nmul(a, b);'
    found = {token.text: token.start for token in tokens(text)}
    assert found["matmul"] == text.index("mat")
    assert found["b"] == text.index("b)")
    assert 'R"(a\\\n)"' in found


def test_what_a_backend_says_beside_the_file_does_not_raise() -> None:
    facts = SourceFacts(embedded=(EmbeddedSource("cuda", "return at::mm(a, b);\n" * 5, 99),))
    assert "library_glue" in {finding.rule for finding in check("x = 1\n", facts)}


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
        *(
            "if ",
            "static ",
            "std::map<",
            ">",
            "/*",
            "*/",
            'R"(',
            ')"',
            "\\",
            "\0",
            "\ud800",
            "import torch\n",
            "}",
            ";",
        ),
        *("f'{", "lambda: ", "global x\n", "import a as ", "from . import b\n", "@", "getattr(", "__global__ ", "id("),
    ]
)


@given(st.one_of(st.text(max_size=300), st.lists(_PIECES, max_size=40).map("".join)))
def test_any_text_is_checked_without_an_exception(text: str) -> None:
    check(text)
    check(f"{MODEL}        return x\nS = {text!r}\n")


@given(st.one_of(st.text(max_size=300), st.lists(_PIECES, max_size=40).map("".join)))
@example("\\\n")
@example("\\\nint a\\\nb;")
@example("#a \\\\\n\nb")
@example("\r")
def test_tokens_cover_any_text_in_order(text: str) -> None:
    found = list(tokens(text))
    text = re.sub(r"\r(?!\n)", "\n", text)
    starts = [token.start for token in found]
    assert starts == sorted(set(starts))
    assert _joined(text[: starts[0] if starts else None]) == ""
    spans = itertools.pairwise([*starts, len(text)])
    assert [_joined(text[start:end]) for start, end in spans] == [_joined(token.text) for token in found]


def _joined(text: str) -> str:
    """The text without the ends of its continued lines, also those that joining lines makes."""
    while (joined := re.sub(r"\\[ \t\f\v\0]*\r?\n", "", text)) != text:
        text = joined
    return text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('a"b\\"c" d', ["name", "string", "space", "name"]),
        ('"a"R"x(";b', ["string", "string", "mark", "name"]),
        ('R""( /* )""a', ["string"]),
        ("// a\\\u00a0\nb", ["comment", "space", "name"]),
        ("// a\rb", ["comment", "space", "name"]),
        ('#pragma region "/*"\nb', ["directive", "space", "name"]),
        ("/**/ #include <a/*b> /* c */\nd", ["comment", "space", "directive", "space", "name"]),
        ('\u00e9R"x(";a', ["name", "string", "mark", "name"]),
        ('R"x(a)" b)x" c', ["string", "space", "name"]),
        ("a // b \\\n c\nd", ["name", "space", "comment", "space", "name"]),
        ("#define A /* x\n*/ B \\\n C\nd", ["directive", "space", "name"]),
        ("a # b", ["name", "space", "mark", "space", "name"]),
        ("1'000.5e-3f 'x'", ["number", "space", "character"]),
        ('"open\nb', ["string", "space", "name"]),
        ("/* open", ["comment"]),
        ("a<<<1, 2>>>(b)", ["name", "mark", "number", "mark", "space", "number"] + ["mark"] * 4 + ["name", "mark"]),
    ],
)
def test_tokens_are_of_the_kinds_of_cpp(text: str, kinds: list[str]) -> None:
    assert [token.kind for token in tokens(text)] == kinds
