"""Calls of references of others in the sandbox: one process each, many in one sandbox.

`serve` runs in a process that has entered the sandbox. It forks for each reference, so that a reference that hangs,
allocates without end or ends its process costs one result. A fork cannot start processes, and gets the descriptor of
its own result only. All data is plain (`reference_values`).
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelrl_judge.runner.reference_values import decoded, encoded, fill_parameters, sampled
from kernelrl_sandbox import privileges, seccomp

__all__ = ["serve"]

_MAX_RESULT_BYTES = 4 << 20
_MAX_DRAWN_ELEMENTS = 1 << 16
_DRAWN_BYTES = 64 << 20
"""Memory for drawing inputs: larger ones fail at once, before they are filled."""
_CALLS_S = 2.0
"""CPU time after which a reference is called with no further probe."""
_SEED = 20260101
_FACTORS = (0.25, 1.0, 6.0)
"""The wide inputs are those of the task with a random sign and one of these factors for each element: values of both
signs, near and far from 0."""


def serve(request: Mapping[str, Any], results: int) -> None:
    """Write one line per program: its result as JSON, or `null` if it has none.

    Args:
        request: `programs`, `probes` and `limit_s`.
        results: descriptor for the lines.
    """
    probes = [_decoded_probe(probe) for probe in request["probes"]]
    for program in request["programs"]:
        line = _in_fork(program, probes, float(request["limit_s"])) or b"null"
        _write(results, line.replace(b"\n", b" ") + b"\n")


def _decoded_probe(probe: Mapping[str, Any]) -> dict[str, Any]:
    return {"init": decoded(probe["init"]), "inputs": decoded(probe["inputs"])}


def _in_fork(program: Mapping[str, Any], probes: Sequence[Mapping[str, Any]], limit_s: float) -> bytes | None:
    """The result of a program in a process of its own; None if it fails, takes too long or writes too much."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _confine(writing, limit_s)
            found = _drawn(program) if program["calls"] is None else _called(program, probes, _CALLS_S)
            _write(writing, json.dumps(found).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + limit_s
    content = bytearray()
    complete = False
    while len(content) <= _MAX_RESULT_BYTES:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([reading], [], [], left_s)[0]:
            break
        part = os.read(reading, 1 << 16)
        if not part:
            complete = True
            break
        content += part
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return bytes(content) if complete and content else None


def _confine(result: int, limit_s: float) -> None:
    """Leave a fork without other descriptors, without processes of its own, and with little CPU time."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    privileges.close_others({result})
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 1))
    seccomp.install(memory_files=False, processes=False, local_sockets=False)


def _limit_memory(additional_bytes: int) -> None:
    with open("/proc/self/statm") as file:
        current_bytes = int(file.read().split()[0]) * resource.getpagesize()
    limit = current_bytes + additional_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _seed(seed: int) -> Any:
    """`torch.manual_seed` for the CPU. The original imports the compiler of torch, which takes seconds."""
    return torch.default_generator.manual_seed(seed)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _namespace(source: str) -> dict[str, Any]:
    """The names of a source after its execution. Transfers to a GPU do nothing."""
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.manual_seed = _seed
    module = type(sys)("reference")
    sys.modules["reference"] = module
    exec(compile(source, "reference.py", "exec"), module.__dict__)
    return module.__dict__


def _arguments(names: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of `Model`, also in KernelBook's form `[[…], {…}]`."""
    given = names["get_init_inputs"]() if "get_init_inputs" in names else []
    match given:
        case [list() as positional, dict() as named]:
            return positional, named
    return list(given), {}


def _drawn(program: Mapping[str, Any]) -> Any:
    """The inputs that a task draws, wider ones, and the arguments of its `Model`; None if there are too many."""
    names = _namespace(program["source"])
    _limit_memory(_DRAWN_BYTES)
    _seed(_SEED)
    inputs = list(names["get_inputs"]())
    if _elements(inputs) > _MAX_DRAWN_ELEMENTS:
        return None
    positional, named = _arguments(names)
    wide = [_wide(value) for value in inputs]
    return {"init": encoded([positional, named]), "inputs": encoded(inputs), "wide": encoded(wide)}


def _elements(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(map(_elements, value)) if isinstance(value, list | tuple) else 0


def _wide(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_wide(item) for item in value]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    generator = torch.Generator().manual_seed(_SEED)
    signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
    factors = torch.tensor(_FACTORS)[torch.randint(0, len(_FACTORS), value.shape, generator=generator)]
    return (value * signs * factors).to(value.dtype)


def _called(program: Mapping[str, Any], probes: Sequence[Mapping[str, Any]], limit_s: float) -> list[Any]:
    """For each probe: samples of the outputs of each model (`_models`); None where it fails, or its time is over."""
    until = time.process_time() + limit_s
    names = _namespace(program["source"])
    entry = names[program["entry"]]
    own = _arguments(names)
    known: dict[str, tuple[Any, list[Any]]] = {}
    found: list[Any] = []
    for number in program["calls"]:
        if time.process_time() > until:
            found.append(None)
            continue
        try:
            models = _models(entry, probes[number]["init"], own, known)
            found.append([_outputs(model, probes[number]["inputs"]) for model in models])
        except Exception:
            found.append(None)
    return found


def _models(
    entry: Any,
    init: Sequence[Any],
    own: tuple[list[Any], dict[str, Any]],
    known: dict[str, tuple[Any, list[Any]]],
) -> Iterator[Any]:
    """The model as its constructor leaves it, then with values that `fill_parameters` sets; one if it has none.

    They have the arguments of the task, or their own if they do not take those. Most references of others fail at the
    first call, so that the second model, which can be large, is made after it.
    """
    candidates = [init, own] if (init[0] or init[1]) and _takes(entry, init) else [own]
    key = repr(candidates)
    for position, arguments in enumerate(() if key in known else candidates):
        try:
            known[key] = (arguments, [_constructed(entry, arguments)])
            break
        except Exception:
            if position == len(candidates) - 1:
                raise
    arguments, models = known[key]
    yield models[0]
    if len(models) == 1 and isinstance(models[0], torch.nn.Module) and next(models[0].parameters(), None) is not None:
        models.append(_constructed(entry, arguments))
        fill_parameters(models[1])
    yield from models[1:]


def _constructed(entry: Any, arguments: Sequence[Any]) -> Any:
    positional, named = arguments
    _seed(_SEED)
    return entry(*positional, **named)


def _takes(entry: Any, init: Sequence[Any]) -> bool:
    """Whether a constructor takes these arguments, by their number and names."""
    try:
        inspect.signature(entry).bind(*init[0], **init[1])
    except (TypeError, ValueError):
        return False
    return True


def _outputs(model: Any, inputs: Sequence[Any]) -> list[Any]:
    _seed(_SEED)
    with torch.no_grad():
        result = model(*(_copy(value) for value in inputs))
    return [sampled(value) for value in itertools.islice(_tensors(result), 16)]


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def _tensors(value: Any) -> Any:
    """The tensors of a result, in order; numbers are tensors of one element."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, int | float):
        yield torch.tensor(float(value))
