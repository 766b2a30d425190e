"""Comments and literals begin and end where they do for the compiler, and the compiler reads what was read."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from kernelrl_judge.build.lexing import Unreadable, as_read, text_of, tokens
from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.screening import Denied, screen

_PIECES = [
    *("a", "u8", "L", "_s", " ", "\n", "\\\n", "\\ \t\n", "\r", "\r\n", "\0", "\f", "é", "\\u00e9", "//\\\u00a0\n"),
    *('"x"', '"/*"', '"\\""', '"\\\\"', "'\"'", "'/*'", '"//"', '"a\\\n/*"', "1", "1'0", "0x1p", ".5e+", "<", ">", "+"),
    *(
        'aR"x(/*"',
        '1R"x(/*"',
        '"a"R"x(/*"',
        "'a'LR\"x(/*\"",
        'éR"x(/*"',
        '\\u00e9uR"x(/*"',
        '"a"_s\\\nR"x(/*"',
        '"a"\\\n"//"',
    ),
    *(
        ' R"(/*\n)"',
        ' R"x()"\\\n)x"',
        ' u8R""(/* )""',
        ' L\\\nR"(\\\n/*)"',
        '/* " */',
        "/*'\n*/",
        "//'/*\n",
        "//\\\n/*\n",
    ),
    *(
        '\n#pragma p "/*"\n',
        "\n#pragma p /*\n*/ '/*' // /*\n",
        '\n/* */ #pragma p "a"R"x(" \\\n"/*"\n',
        "\n%:undef Q // '\n",
    ),
    *("\n#undef Q don't \"/*\n", '\n#pragma p R"(/*)" "a\\\n"\n', '\n# /* < */ undef Q "*/"\n', "\n##"),
]
"""Each comes to its end by itself."""


def _text(seed: int) -> str:
    chosen = random.Random(seed)
    return "".join(chosen.choice(_PIECES) for _ in range(1500)) + "\n"


def _plain(text: str) -> str:
    """What is left of preprocessed text without blanks and pragmas."""
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
    assert _preprocessed(as_read(text)) == expected


@pytest.mark.parametrize("seed", range(3))
def test_lines_keep_their_numbers_and_nothing_is_lost_but_comments(seed: int) -> None:
    text = _text(seed)
    read = as_read(text)
    assert read.count("\n") == text_of(tokens(text)).count("\n")
    assert _code(read) == _code(text)


def _code(text: str) -> list[str]:
    return [token.text for token in tokens(text) if not token.blank and token.kind != "directive"]


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ('"a"R"x(";', '"a"R "x(";'),
        ('#pragma region "/*"\na; // b\n', '#pragma region "/*"\na;     \n'),
        ("#define A /* b\n*/ c\nd", "#define A   c\n\nd"),
        ("#include <a//b> // c", "#include <a//b>  "),
        ('#define A "a"R"x("', '#define A "a"R "x("'),
    ],
)
def test_a_source_can_be_read_in_one_way_alone(source: str, read: str) -> None:
    assert as_read(source) == read


@pytest.mark.parametrize("source", ["a \\\\\n\nb", "#define A \\\\\n\nb", "a \\", "a \\/*\n*/"])
def test_a_backslash_that_would_join_other_lines_is_refused(source: str) -> None:
    with pytest.raises(Unreadable, match="backslash"):
        as_read(source)


@pytest.mark.parametrize("flag", ["-finput-charset=ISO-2022-JP", "-fmodules-ts", "-fdirectives-only"])
def test_flags_that_have_a_source_read_otherwise_are_denied(flag: str) -> None:
    empty = dict.fromkeys(("cpp_sources", "device_sources", "functions", "device_flags", "ldflags"), ())
    with pytest.raises(Denied, match="extra_cflags"):
        screen(InlineRequest(**empty, language="cpp", name="x", include_paths=(), arch=(), cflags=(flag,)))  # type: ignore[arg-type]
