"""Records the candidate in its runner, and then lets the native library serve the judge.

Everything that this module reports is evidence: candidate code shares the process. The judge compares every output and
checks the times against its own clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import attrs

from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import Stage, lacks_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, leaves_of
from kernelrl_judge.replay import nodes
from kernelrl_judge.replay.capture import Captured, NotCaptured, Recorder, storage_range
from kernelrl_judge.replay.library import Library
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.memory import Originals, described
from kernelrl_judge.runner.state import named_tensors

__all__ = ["CandidateRecorder", "FollowedCall"]

_WARM_UPS = 3
_MAX_REASON = 300
_CAPTURE_ERRORS = (
    (re.compile(r"unjoined work", re.I), "work on another stream is not joined to the current stream"),
    (re.compile(r"legacy stream|implicit", re.I), "work is launched on the legacy default stream"),
    (
        re.compile(r"not permitted when stream is capturing|capture.*unsupported|capturing", re.I),
        "the call waits for the device or copies to the host",
    ),
    (re.compile(r"previous error during capture|invalidated", re.I), "a CUDA call that cannot be recorded was made"),
)


class _Undescribed(Exception):
    """An output that cannot be described; the argument is the error."""


class CandidateRecorder:
    """Serves the judge's orders to record.

    Args:
        library: opened before the candidate was loaded.
        originals: methods of torch, put back before outputs are described.
    """

    def __init__(self, candidate: Candidate, library: Library, originals: Originals) -> None:
        self._candidate = candidate
        self._library = library
        self._originals = originals
        self._recorder: Recorder | None = None
        self._path = candidate.dialogue.path
        self._kept: list[Captured] = []

    def load(self) -> None:
        """Load the device code; before candidate code runs, and with a context."""
        self._library.load()
        self._recorder = Recorder(self._library)

    def record(self, frame: Frame) -> None:
        """Warm up, capture each of the ordered numbers of calls, answer, and serve passes until the judge leaves."""
        order = decode_tree(frame.body)
        candidate, dialogue = self._candidate, self._candidate.dialogue
        recorder = self._recorder
        assert recorder is not None
        # Those of the recording before, whose memory is free from now on.
        self._kept.clear()
        candidate.inputs.refresh()
        slots = candidate.inputs.announced(order["slots"])
        warm = candidate.inputs.values(order["warm"], candidate.device)
        state = candidate.state.tensors(order["restored"])
        state = {name: tensor for name, tensor in state.items() if _fits(order["left"][name], tensor)}
        restored = [(tensor, tensor.detach().clone()) for tensor in state.values()]
        last = dialogue.attempt(Stage.FORWARD, lambda: recorder.warm_up(candidate.model, warm, _WARM_UPS))
        # A capture has memory of its own.
        give_back_spare()
        lasting = [storage_range(tensor) for tensor in (*tensors(warm), *tensors(last), *tensors(slots))]
        places = candidate.outputs.places(order["outputs"])
        left = [(place, state[name]) for name, place in self._places(order["left"]).items() if name in state]
        self._originals.restore()
        trees: dict[int, Any] = {}

        def copies(number: int, output: Any) -> list[tuple[Any, Any]]:
            trees[number], found = _described(output)
            wanted = [*leaves_of(order["outputs"][number])]
            same = len(wanted) == len(found) and all(map(_fits, wanted, found))
            return list(zip(places[number], found, strict=True)) if same else []

        def record(function: Callable[..., Any], count: int) -> Captured:
            with _recording():
                return recorder.record(
                    function,
                    slots[:count],
                    restored=restored,
                    copies=copies,
                    left=left,
                    lasting=lasting,
                    before_copies=self._originals.restore,
                )

        try:
            for count in order["counts"]:
                made = record(candidate.model, count)
                if reason := nodes.refused(made.nodes):
                    raise NotCaptured(reason)
                self._kept.append(made)
        except _Undescribed as unfit:
            raise_later = unfit.args[0]
            dialogue.attempt(Stage.EXPORT, lambda: _raise(raise_later))
        except BaseException as error:
            reason, line = self._why(error)
            self._kept.clear()
            line = line or self._searched(recorder, lambda function: record(function, 1))
            facts = {"not_recorded": reason, "line": line, "memory": lacks_memory(str(error))}
            dialogue.answer(FrameKind.RECORDED, facts)
            return
        facts = {
            "outputs": [trees[number] for number in sorted(trees)],
            "nodes": _counted(self._kept[-1], self._given(slots)),
            "state": sorted(state),
        }
        dialogue.answer(FrameKind.RECORDED, facts)
        self._serve(recorder)

    def _serve(self, recorder: Recorder) -> None:
        recordings = [
            attrs.evolve(made.recording, own=nodes.own_numbers(made.nodes, made.first)) for made in self._kept
        ]
        kinds = (int(FrameKind.REPLAY), int(FrameKind.REPLAYED))
        stream = self._candidate.dialogue.stream
        stream.setblocking(True)
        if not self._library.serve(stream.fileno(), kinds, recorder.stream.cuda_stream, recorder.gate_at, recordings):
            # The judge is gone.
            raise SystemExit

    def _given(self, slots: Any) -> list[tuple[int, int]]:
        """Address ranges of inputs and of the model's tensors."""
        return [storage_range(tensor) for tensor in (*tensors(slots), *named_tensors(self._candidate.model).values())]

    def _places(self, trees: Any) -> dict[str, Any]:
        found = self._candidate.outputs.places([*trees.values()])
        return {name: place[0] for name, place in zip(trees, found, strict=True)}

    def _why(self, error: BaseException) -> tuple[str, int]:
        """Why a recording failed, and the line of the candidate where; 0 where that is not known."""
        text = str(error).partition("\n")[0][:_MAX_REASON]
        reason = next((said for pattern, said in _CAPTURE_ERRORS if pattern.search(text)), "")
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._path:
                line = trace.tb_lineno
            trace = trace.tb_next
        return (f"{reason} ({text})" if reason and reason != text else reason or text or type(error).__name__), line

    def _searched(self, recorder: Recorder, record: Callable[[Callable[..., Any]], Captured]) -> int:
        """The line that no exception names, from a capture of one call that is followed line by line; 0 if that does
        not show it."""
        stream = recorder.stream.cuda_stream
        followed = FollowedCall(self._candidate.model, self._path, lambda: self._library.captured(stream))
        # The capture fails as the one before did.
        with contextlib.suppress(Exception):
            made = record(followed)
            refused = next(number for number, node in enumerate(made.nodes) if nodes.refused([node]))
            return followed.line_of(made.first + refused)
        return followed.line_of(None)


class FollowedCall:
    """A call of a function that notes after each line of a file how many nodes were captured.

    Args:
        captured: returns the number of nodes; None once the capture is invalid.
    """

    def __init__(self, function: Callable[..., Any], path: str, captured: Callable[[], int | None]) -> None:
        self._function = function
        self._path = path
        self._captured = captured
        self._line = 0
        self._notes: list[tuple[int, int | None]] = []

    def __call__(self, *arguments: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(self._follow)
        try:
            return self._function(*arguments)
        finally:
            sys.settrace(before)
            self._note(0)

    def line_of(self, node: int | None) -> int:
        """The line that added a node, or that made the capture invalid if there is none; 0 if no line did."""
        for line, count in self._notes:
            if count is None if node is None else count is not None and count > node:
                return line
        return 0

    def _follow(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        caller = frame.f_back
        if event == "return" and caller is not None and caller.f_code.co_filename == self._path:
            # The line of the caller goes on.
            frame = caller
        self._note(frame.f_lineno)
        return self._follow

    def _note(self, next_line: int) -> None:
        if self._line:
            self._notes.append((self._line, self._captured()))
        self._line = next_line


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """Let calls that wait for the device do nothing while a call is captured: replays are waited for anyway."""
    import torch

    waits = ((torch.cuda, "synchronize"), (torch.cuda.Stream, "synchronize"), (torch.cuda.Event, "synchronize"))
    kept = [(owner, name, vars(owner)[name]) for owner, name in waits]
    try:
        for owner, name in waits:
            setattr(owner, name, _nothing)
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    """Does not wait."""


def _raise(error: BaseException) -> None:
    raise error


def _described(output: Any) -> tuple[Any, list[Any]]:
    """The tree of an output, without places, and its tensors in the order of the leaves.

    Raises:
        _Undescribed: there is something in it that is neither a plain tensor nor a plain value.
    """
    found: list[Any] = []

    def place(tensor: Any) -> int:
        found.append(tensor)
        return 0

    try:
        return described(output, place), found
    except TypeError as error:
        raise _Undescribed(error) from None


def _fits(leaf: TensorLeaf, tensor: Any) -> bool:
    return tuple(tensor.shape) == leaf.shape and str(tensor.dtype) == f"torch.{leaf.dtype}" and tensor.is_cuda


@functools.cache
def _demangled(symbol: str) -> str:
    """The name in C++ without parameters; `symbol` where it is none."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return symbol
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(symbol.encode(), None, None, ctypes.byref(status))
    # Its memory, a few hundred bytes of a process that ends soon, is not freed.
    text = ctypes.string_at(made).decode(errors="replace") if made else symbol
    return text.removeprefix("void ").partition("(")[0] or symbol


def _counted(made: Captured, given: list[tuple[int, int]]) -> list[list[Any]]:
    """Names of kernels with their kind and number of launches in all calls."""
    found: dict[tuple[str, str], int] = {}
    for node, kind in zip(made.nodes, nodes.kinds(made.nodes, given), strict=True):
        key = (_demangled(node.name) or node.type, kind)
        found[key] = found.get(key, 0) + 1
    return [[name, kind, count] for (name, kind), count in found.items()][:256]
