"""Sources can be parsed in several threads."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from kernelrl_sources.syntax import parse

SOURCE = "def f(x):\n    return {'a': [x + 1, (x, -x)]}\n" * 300


def test_concurrent_parsing_is_correct() -> None:
    def collected(*_: object) -> None:
        # Python code that runs while a tree is built lets the other thread continue.
        sum(range(2_000))

    gc.callbacks.append(collected)
    try:
        with ThreadPoolExecutor(2) as threads:
            trees = list(threads.map(lambda _: parse(SOURCE), range(12)))
    finally:
        gc.callbacks.remove(collected)
    assert {len(tree.body) for tree in trees} == {300}
