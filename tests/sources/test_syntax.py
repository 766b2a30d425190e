"""Sources are parsed in more than one thread."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

from kernelrl_core.sources.syntax import parse

SOURCE = "def f(x):\n    return {'a': [x + 1, (x, -x)]}\n" * 300


def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    def collected(*_: object) -> None:
        # Code of Python's that runs while a tree is made lets the other thread go on.
        sum(range(2_000))

    gc.callbacks.append(collected)
    try:
        with ThreadPoolExecutor(2) as threads:
            trees = list(threads.map(lambda _: parse(SOURCE), range(12)))
    finally:
        gc.callbacks.remove(collected)
    assert {len(tree.body) for tree in trees} == {300}
