"""Which processors timed sections of a GPU have: two each, which other work of ours leaves alone.

Judge and runner answer each other within microseconds, and both wait busily. On one processor each would wait until the
other's time slice ends, and beside a compiler until the compiler's does: milliseconds for every message. Processes of
one machine agree by file locks.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from kernelrl_judge.isolation.freezing import Held

__all__ = ["Pair", "apart", "pairs", "siblings", "spare", "surroundings"]

Pair = tuple[int, int]
"""Processors of a judge and of its runner, on different cores."""

_PAIRS = "KERNELRL_TIMED_ON"
_SPARED = "KERNELRL_SPARED_PROCESSORS"
_TOPOLOGY = Path("/sys/devices/system/cpu")


def surroundings(sections: int) -> dict[str, str]:
    """Variables of the environment that `apart` and `spare` read, for judges of GPUs and for builds.

    Args:
        sections: timed at once: as many as there are GPUs.
    """
    chosen, spared = pairs(siblings(os.sched_getaffinity(0)), sections)
    if not chosen:
        return {}
    return {_PAIRS: json.dumps(chosen), _SPARED: json.dumps(sorted(spared))}


def pairs(cores: Sequence[Set[int]], sections: int) -> tuple[list[Pair], frozenset[int]]:
    """The pairs that timed sections may have, the first ones first, and the processors that all else leaves alone.

    No more than half of the cores are left alone. Further pairs are for sections of other runs.

    Args:
        cores: processors of each core.
        sections: timed at once.
    """
    chosen = [(cores[-1 - 2 * index], cores[-2 - 2 * index]) for index in range(len(cores) // 2)]
    spared = chosen[: min(sections, len(cores) // 4)]
    return [(min(one), min(other)) for one, other in chosen], frozenset().union(
        *(core for pair in spared for core in pair)
    )


def siblings(allowed: Iterable[int], topology: Path = _TOPOLOGY) -> list[frozenset[int]]:
    """Processors by core, in the order of their numbers; each is a core of its own where the system does not say."""
    left, found = sorted(allowed), []
    while left:
        try:
            core = _read((topology / f"cpu{left[0]}" / "topology" / "thread_siblings_list").read_text())
        except (OSError, ValueError):
            core = frozenset()
        found.append(frozenset({left[0], *(core & {*left})}))
        left = [number for number in left if number not in found[-1]]
    return found


def spare(environment: Mapping[str, str] = os.environ) -> None:
    """Leave the processors of timed sections alone: this thread, and the threads and processes that it starts."""
    spared = {*json.loads(environment.get(_SPARED, "[]"))}
    with contextlib.suppress(OSError):
        left = os.sched_getaffinity(0) - spared
        if spared and left:
            os.sched_setaffinity(0, left)


@contextlib.contextmanager
def apart(root: int, environment: Mapping[str, str] = os.environ) -> Iterator[Pair | None]:
    """Have this thread and what runs below a process on processors of their own, if any are free; gives which.

    Args:
        root: the process, whose descendants are meant.
    """
    with contextlib.ExitStack() as stack:
        chosen = map(tuple, json.loads(environment.get(_PAIRS, "[]")))
        pair = next((pair for pair in chosen if _taken(pair, stack)), None)
        if pair is not None:
            usual = os.sched_getaffinity(0)
            stack.callback(_move, 0, usual)
            _move(0, {pair[0]})
            held = Held(root)
            stack.callback(held.close)
            for pid in held.find():
                stack.callback(_move, pid, usual, held)
                _move(pid, {pair[1]}, held)
        yield pair


def _taken(pair: Pair, stack: contextlib.ExitStack) -> bool:
    # A judge calls `spare` before it imports anything that its zygotes need not have.
    from kernelrl_core.api.config import FileLock
    from kernelrl_core.api.evaluators import lock_directory

    path = lock_directory() / f"processors-{pair[0]}-{pair[1]}.turn"
    try:
        stack.enter_context(FileLock(path, wait=False))
    except BlockingIOError:
        return False
    return True


def _move(pid: int, numbers: Set[int], held: Held | None = None) -> None:
    # It may have ended, or this process may be kept on other processors by now.
    with contextlib.suppress(OSError):
        if held is None or held.lives(pid):
            os.sched_setaffinity(pid, numbers)


def _read(text: str) -> frozenset[int]:
    """Numbers in a list such as `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
