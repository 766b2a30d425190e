"""Reading sources that were made to keep their reader busy."""

from __future__ import annotations

import time

import pytest

from kernelrl_judge.building.kernel_facts import extension_facts
from kernelrl_judge.building.lexing import Unreadable, tokens

_SIZE = 150_000


def test_a_raw_string_or_comment_that_nobody_closes_is_refused() -> None:
    for text in ('auto s = R"x(abc', "int a; /* abc"):
        with pytest.raises(Unreadable):
            tokens(text)


@pytest.mark.parametrize("piece", ['R"(', 'R"aaaaaaaaaaaa(', "/* ", "#/* \n", "#define X __global__ "])
def test_reading_takes_time_in_proportion_to_the_text(piece: str) -> None:
    text = (piece * _SIZE)[:_SIZE]
    started = time.process_time()
    extension_facts(f"load_inline(name='x', cpp_sources='', cuda_sources={text!r})", "cuda")
    assert time.process_time() - started < 10.0
