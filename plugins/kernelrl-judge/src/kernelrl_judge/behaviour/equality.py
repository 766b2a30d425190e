"""Which references of others compute the same as a task: equal outputs for the task's inputs.

A task is probed with its own inputs, and with wider ones of both signs. One whose inputs are too large is probed at two
smaller sizes; both count, because small sizes can make different computations equal. At its own size a task is probed
at no other one, because references of others have sizes written into them. Tasks that draw equal inputs share their
probes. A reference is called with a probe if it takes as many inputs. First it gets the own inputs of each probe; only
where its outputs equal those of a task, also the others. It computes the same as the task if no output differs. Outputs
that are constant over all probes decide nothing.

A module with parameters is called twice: with values that depend only on the shapes of the parameters, because others
make the same ones in another order; and as its constructor leaves it, because others keep them transformed, or have
none where they have no effect at first. Equal outputs in one of the two ways are enough.

Outputs are compared with a tolerance for single precision (`_RELATIVE`), because two spellings of one computation round
differently.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kernelrl_core.api.sources import parse_source
from kernelrl_judge.behaviour.runner import ReferenceProgram, ReferenceRunner
from kernelrl_judge.behaviour.sizes import LADDERS, resized

__all__ = ["NOT_RUN", "ProbedTasks", "equal_among", "equal_tasks", "probe_tasks"]

NOT_RUN = None
"""Result of a reference that could not be called."""

_RELATIVE = 2e-5
_SMALLER_SIZES = 2
"""Number of sizes at which a task with too large inputs is compared."""
_LEAST_FINITE = 0.5
_ENTRY = "Model"
_WAYS = 2
"""Values of parameters: those of the constructor, and those of the runner."""

_Output = tuple[tuple[int, ...], npt.NDArray[np.float64]]
_Ways = tuple[list[_Output] | None, ...]
"""Outputs of a call in each way; None where it failed."""


@attrs.frozen
class _Set:
    """Probes that a task shares with those that draw equal inputs: own inputs, then wide ones and those of another
    size."""

    own: int
    others: tuple[int, ...]
    n_inputs: int


@attrs.define
class ProbedTasks:
    """Tasks with their probes and outputs."""

    probes: list[Mapping[str, Any]]
    """`init` and `inputs`, encoded."""
    sets: list[_Set]
    by_way: list[dict[str, dict[int, _Ways]]]
    """For each set: key of a task -> number of a probe -> its outputs."""
    unprobed: list[str]
    """Keys of the tasks that cannot be called, or whose outputs are constant."""

    @property
    def keys(self) -> list[str]:
        """Keys of the tasks that references are compared with."""
        return sorted({key for by_way in self.by_way for key in by_way})


def probe_tasks(runner: ReferenceRunner, tasks: Mapping[str, str]) -> ProbedTasks:
    """Call tasks with their probes.

    Args:
        tasks: key -> source of the reference.
    """
    probes: list[Mapping[str, Any]] = []
    numbers: dict[str, int] = {}

    def number_of(init: Any, inputs: Any) -> int:
        text = json.dumps([init, inputs], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in numbers:
            numbers[digest] = len(probes)
            probes.append({"init": init, "inputs": inputs})
        return numbers[digest]

    by_way: dict[str, dict[int, _Ways]] = {}
    pairs: dict[str, list[tuple[int, int]]] = {}
    incomplete = list(tasks)
    for ladder in (None, *LADDERS):
        sized = {key: tasks[key] if ladder is None else resized(tasks[key], ladder) for key in incomplete}
        sources = {key: source for key, source in sized.items() if source is not None}
        drawn = runner.run([ReferenceProgram(source, None) for source in sources.values()], ())
        calls = {
            key: (number_of(found["init"], found["inputs"]), number_of(found["init"], found["wide"]))
            for key, found in zip(sources, list(drawn), strict=True)
            if isinstance(found, dict)
        }
        results = runner.run([ReferenceProgram(sources[key], pair) for key, pair in calls.items()], probes)
        for (key, pair), result in zip(calls.items(), results, strict=True):
            outputs = [_ways(one, finite=True) for one in result or (None, None)]
            if any(outputs[0]):
                by_way.setdefault(key, {}).update(zip(pair, outputs, strict=True))
                pairs.setdefault(key, []).append(pair)
        n_sizes = 1 if ladder is None else _SMALLER_SIZES
        incomplete = [key for key in incomplete if len(pairs.get(key, ())) < n_sizes]
    made = ProbedTasks(probes, [], [], [])
    positions: dict[tuple[int, ...], int] = {}
    for key in tasks:
        of_task = _varying(by_way.get(key, {}))
        if not of_task or not any(of_task[pairs[key][0][0]]):
            made.unprobed.append(key)
            continue
        own = pairs[key][0][0]
        others = tuple(number for pair in pairs[key] for number in pair if number != own)
        position = positions.setdefault((own, *others), len(made.sets))
        if position == len(made.sets):
            inputs = probes[own]["inputs"]
            made.sets.append(_Set(own, others, len(inputs["list"])))
            made.by_way.append({})
        made.by_way[position][key] = of_task
    return made


def equal_tasks(
    runner: ReferenceRunner,
    tasks: ProbedTasks,
    sources: Sequence[str],
    progress: Callable[[int], None] = lambda done: None,
) -> list[tuple[str, ...] | None]:
    """For each reference, the keys of the tasks that it computes; `NOT_RUN` if it cannot be called.

    Args:
        progress: called with the number of references that have been called.
    """
    arities = [_arity(source) for source in sources]
    fitting = [[] if arity is None else _fitting(tasks, arity) for arity in arities]
    first = [
        ReferenceProgram(
            source, tuple(tasks.sets[position].own for position in positions), arity[0] if arity else _ENTRY
        )
        for source, positions, arity in zip(sources, fitting, arities, strict=True)
    ]
    candidates: list[dict[str, int]] = []
    ran: list[bool] = []
    called = iter(runner.run([program for program in first if program.calls], tasks.probes))
    for done, (program, positions) in enumerate(zip(first, fitting, strict=True), start=1):
        result = next(called) if program.calls else None
        found: dict[str, int] = {}
        for position, one in zip(positions, result or (), strict=False):
            ways = _ways(one)
            for key, expected in tasks.by_way[position].items():
                if _equal_ways(expected[tasks.sets[position].own], ways):
                    found[key] = position
        candidates.append(found)
        ran.append(isinstance(result, list) and any(one is not None for one in result))
        progress(done)
    second = {
        row: ReferenceProgram(sources[row], _others(tasks, found), first[row].entry)
        for row, found in enumerate(candidates)
        if found
    }
    confirmed = dict(zip(second, runner.run(list(second.values()), tasks.probes), strict=True))
    equal: list[tuple[str, ...] | None] = []
    for row, found in enumerate(candidates):
        if not ran[row]:
            equal.append(NOT_RUN)
            continue
        result = confirmed.get(row) or ()
        calls = (second[row].calls or ()) if row in second else ()
        of_probe = {number: _ways(one) for number, one in zip(calls, result, strict=False)}
        keys = [key for key, position in found.items() if _confirmed(tasks, key, position, of_probe)]
        equal.append(tuple(sorted(keys)))
    return equal


def equal_among(runner: ReferenceRunner, tasks: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """For each task, the keys of the others that it computes.

    Args:
        tasks: key -> source of the reference.
    """
    probed = probe_tasks(runner, tasks)
    found = equal_tasks(runner, probed, list(tasks.values()))
    return {key: tuple(one for one in keys or () if one != key) for key, keys in zip(tasks, found, strict=True)}


def _arity(source: str) -> tuple[str, int, float] | None:
    """Name of the module, and the least and greatest number of inputs of its `forward`; None without one."""
    tree = parse_source(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)] if tree is not None else []
    with_forward = [node for node in classes if _forward(node) is not None]
    entry = next((node for node in classes if node.name == _ENTRY), with_forward[-1] if with_forward else None)
    if entry is None:
        return None
    forward = _forward(entry)
    if forward is None:
        return entry.name, 0, float("inf")
    arguments = forward.args
    most = len(arguments.posonlyargs) + len(arguments.args) - 1
    least = most - len(arguments.defaults)
    return entry.name, least, float("inf") if arguments.vararg is not None else most


def _forward(node: ast.ClassDef) -> ast.FunctionDef | None:
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
    return methods[-1] if methods else None


def _fitting(tasks: ProbedTasks, arity: tuple[str, int, float]) -> list[int]:
    _, least, most = arity
    return [position for position, one in enumerate(tasks.sets) if least <= one.n_inputs <= most]


def _others(tasks: ProbedTasks, found: Mapping[str, int]) -> tuple[int, ...]:
    sets = [tasks.sets[position] for position in found.values()]
    return tuple(dict.fromkeys(number for one in sets for number in (one.own, *one.others)))


def _confirmed(tasks: ProbedTasks, key: str, position: int, called: Mapping[int, _Ways]) -> bool:
    """Whether all outputs equal those of a task in one way, for at least one probe besides its own inputs, if any."""
    own, others = tasks.sets[position].own, tasks.sets[position].others
    expected = tasks.by_way[position][key]
    ways = set(range(_WAYS))
    n_compared = 0
    for number in (own, *others):
        wanted, found = expected.get(number), called.get(number)
        if wanted is None or found is None or not any(wanted) or not any(found):
            continue
        ways &= _equal_ways(wanted, found)
        n_compared += number != own
    return bool(ways) and (n_compared > 0 or not others)


def _equal_ways(expected: _Ways, found: _Ways) -> set[int]:
    """The ways in which outputs are equal."""
    return {
        way
        for way, (wanted, outputs) in enumerate(zip(expected, found, strict=True))
        if wanted is not None and outputs is not None and _equal(wanted, outputs)
    }


def _ways(result: Any, *, finite: bool = False) -> _Ways:
    """Outputs of a call in each way.

    Args:
        finite: whether outputs count only if most of their elements are finite.
    """
    models = result if isinstance(result, list) and 0 < len(result) <= _WAYS else [None]
    found = [_outputs(model) for model in models]
    if finite:
        found = [outputs if outputs is not None and _is_finite(outputs) else None for outputs in found]
    return (found[0], found[-1])


def _outputs(result: Any) -> list[_Output] | None:
    """Outputs of a call; None if it failed. The process that wrote them is not trusted."""
    if not isinstance(result, list):
        return None
    found: list[_Output] = []
    try:
        for one in result:
            shape = tuple(int(size) for size in one["shape"])
            found.append((shape, np.frombuffer(base64.b64decode(one["data"]), np.float64)))
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return found or None


def _is_finite(outputs: Sequence[_Output]) -> bool:
    return all(len(values) and np.isfinite(values).mean() >= _LEAST_FINITE for _, values in outputs)


def _varying(called: Mapping[int, _Ways]) -> dict[int, _Ways]:
    """Outputs without the ways in which the outputs of all calls have one value."""
    kept = [_varies([outputs for ways in called.values() if (outputs := ways[way])]) for way in range(_WAYS)]
    return {
        number: tuple(outputs if kept[way] else None for way, outputs in enumerate(ways))
        for number, ways in called.items()
    }


def _varies(calls: Sequence[Sequence[_Output]]) -> bool:
    if not calls:
        return False
    values = np.concatenate([values for outputs in calls for _, values in outputs])
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and float(np.ptp(finite)) > _RELATIVE * max(1.0, float(np.abs(finite).max()))


def _equal(expected: Sequence[_Output], outputs: Sequence[_Output]) -> bool:
    """Whether outputs have equal shapes, and equal values where both are finite."""
    if len(expected) != len(outputs):
        return False
    for (shape, wanted), (other_shape, values) in zip(expected, outputs, strict=True):
        if shape != other_shape or wanted.shape != values.shape:
            return False
        both = np.isfinite(wanted) & np.isfinite(values)
        if both.mean() < _LEAST_FINITE * np.isfinite(wanted).mean():
            return False
        wanted, values = wanted[both], values[both]
        scale = float(np.abs(wanted).max(initial=0.0))
        if not np.all(np.abs(wanted - values) <= _RELATIVE * (np.abs(wanted) + min(1.0, scale))):
            return False
    return True
