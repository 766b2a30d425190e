"""Comments and literals begin and end where they do for the compiler."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.lexing import Unreadable, items, text_of, tokens
from kernelrl_build.screening import Denied, screen

_PIECES = [
    *("a", "u8", "L", " ", "\n", "\\\n", "\r\n", "\0", "\f", "é", "1", "1'0", "0x1p", ".5e+", "<", ">", "+"),
    *('"x" ', '"/*" ', '"\\"" ', '"\\\\" ', "'\"' ", "'/*' ", '"//" ', '"a\\\n/*" '),
    *(' R"(/*\n)" ', ' R"x()"\\\n)x" ', ' u8R""(/* )"" ', '/* " */', "/*'\n*/", "//'/*\n", "//\\\n/*\n"),
    *(
        '\n#pragma p "/*"\n',
        "\n#pragma p /*\n*/ '/*' // /*\n",
        "\n#undef Q don't\n",
        '\n# /* < */ undef Q "*/"\n',
        "\n##",
    ),
]
"""Each comes to its end by itself."""


def _text(seed: int) -> str:
    chosen = random.Random(seed)
    return "".join(chosen.choice(_PIECES) for _ in range(1500)) + "\n"


def _plain(text: str) -> str:
    """Preprocessed text without blanks and pragmas."""
    text = re.sub(r"\\U0000([0-9a-f]{4})|\\u([0-9a-f]{4})", lambda match: chr(int(match[1] or match[2], 16)), text)
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#pragma")]
    return re.sub(r"[\s\0\\]", "", "".join(lines))


def _preprocessed(text: str) -> str:
    command = ["g++", "-E", "-P", "-w", "-x", "c++", "-std=c++17", "-"]
    return _plain(subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout.decode())


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("seed", [1, 2])
def test_comments_strings_and_directives_are_those_of_the_compiler(seed: int) -> None:
    text = _text(seed)
    expected = _preprocessed(text)
    assert len(expected) > 1000
    assert expected == _plain(
        "".join(token.text for token in tokens(text) if token.kind not in ("comment", "directive"))
    )


@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_the_whole_source_with_their_lines(seed: int) -> None:
    text = _text(seed).replace("\r\n", "\n")
    found = tokens(text)
    assert text_of(found) == text
    line = 1
    for token in found:
        assert token.line == line
        line += token.text.count("\n")


@pytest.mark.parametrize("flag", ["-finput-charset=ISO-2022-JP", "-fmodules-ts", "-fdirectives-only"])
def test_flags_that_have_a_source_read_otherwise_are_denied(flag: str) -> None:
    empty = dict.fromkeys(("cpp_sources", "device_sources", "functions", "device_flags", "ldflags"), ())
    with pytest.raises(Denied, match="extra_cflags"):
        screen(InlineRequest(**empty, language="cpp", name="x", include_paths=(), arch=(), cflags=(flag,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("after", ["", "#undef BIND\n", "// the end\n"])
def test_a_macro_that_defines_a_function_needs_no_semicolon(after: str) -> None:
    found = [item for item in items(f"int one() {{ return 1; }}\nBIND(relu, (x))\n{after}") if item.words]
    assert [item.kind for item in found[:2]] == ["function", "declaration"]
    assert found[1].words[0] == "BIND"


@pytest.mark.parametrize("text", ["int one", "int one()", "BIND(relu) one", "BIND"])
def test_a_source_may_not_end_inside_a_declaration(text: str) -> None:
    with pytest.raises(Unreadable):
        list(items(text))
