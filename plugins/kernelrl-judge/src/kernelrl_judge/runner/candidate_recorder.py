"""Recordings of the candidate: their capture in the runner, and the service of replays by the native library.

All reports of this module are evidence, because candidate code shares the process. The judge compares every output and
checks the times with its own clock.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

import attrs
import torch

from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import Phase, lacks_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.orders import RecordOrder
from kernelrl_judge.protocol.trees import ordered_as, tensors
from kernelrl_judge.protocol.values import TensorLeaf, encode_tree, leaves_of
from kernelrl_judge.replay import nodes
from kernelrl_judge.replay.capture import Captured, NotCaptured, Recorder, storage_range
from kernelrl_judge.replay.library import Library
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.followed_call import FollowedCall
from kernelrl_judge.runner.model_state import named_tensors
from kernelrl_judge.runner.shared_memory import described
from kernelrl_judge.runner.torch_originals import TorchOriginals

__all__ = ["CandidateRecorder"]

_WARM_UPS = 3
_MAX_REASON = 300
_MOST_KERNELS = 256
"""Maximum number of kernel names that are reported."""
_CAPTURE_ERRORS = (
    (re.compile(r"unjoined work", re.I), "work on another stream is not joined to the current stream"),
    (re.compile(r"legacy stream|implicit", re.I), "work is launched on the legacy default stream"),
    (
        re.compile(r"not permitted when stream is capturing|capture.*unsupported|capturing", re.I),
        "the call waits for the device or copies to the host",
    ),
    (re.compile(r"previous error during capture|invalidated", re.I), "a CUDA call that cannot be recorded was made"),
)
"""Patterns of error messages, and the reasons that they mean."""


class _Undescribed(Exception):
    """An output that cannot be described; the argument is the error."""


@attrs.frozen
class _Preparation:
    """The tensors and addresses that captures need."""

    slots: list[Any]
    """Arguments in each input slot."""
    places: list[list[torch.Tensor]]
    """Places of the outputs of each call."""
    restored: list[tuple[torch.Tensor, torch.Tensor]]
    """Tensors of the state, and the values that they get before the calls."""
    left: list[tuple[torch.Tensor, torch.Tensor]]
    """Places of the state after the calls, and the tensors of the state."""
    lasting: list[tuple[int, int]]
    """Address ranges of memory that no captured call allocates."""
    state_names: list[str]
    """Names of the state that is read after the calls, as far as the candidate has it."""


class CandidateRecorder:
    """Serves orders to record the candidate.

    Args:
        library: opened before the candidate was loaded.
        originals: functions of torch that are restored before outputs are copied.
    """

    def __init__(self, candidate: Candidate, library: Library, originals: TorchOriginals) -> None:
        self._candidate = candidate
        self._channel = candidate.channel
        self._path = candidate.channel.path
        self._library = library
        self._originals = originals
        self._recorder: Recorder | None = None
        self._recordings: list[Captured] = []

    def load(self) -> None:
        """Load the device code, before candidate code runs. Needs a context."""
        self._library.load()
        self._recorder = Recorder(self._library)

    def record(self, frame: Frame) -> None:
        """Warm up, capture each of the ordered numbers of calls, reply, and serve replays until the judge leaves."""
        order = RecordOrder.decoded(frame.body)
        recorder = self._recorder
        assert recorder is not None
        # The memory of the previous recordings is free from now on.
        self._recordings.clear()
        preparation = self._prepare(order, recorder)
        output_trees: dict[int, Any] = {}

        def capture(function: Callable[..., Any], count: int) -> Captured:
            copies = functools.partial(_copies, order, preparation, output_trees)
            return self._capture(recorder, preparation, copies, function, count)

        try:
            self._capture_each(order.counts, capture)
        except _Undescribed as error:
            original_error = error.args[0]
            self._channel.attempt(Phase.EXPORT, lambda: _raise(original_error))
        except BaseException as error:
            self._recordings.clear()
            line = _line_of_candidate(error, self._path) or self._line_found_by_following(recorder, capture)
            facts = {"not_recorded": _reason(error), "line": line, "memory": lacks_memory(str(error))}
            self._channel.reply(FrameKind.RECORDED, encode_tree(facts))
            return
        ranges_of_inputs = self._ranges_of_inputs(preparation.slots)
        facts = {
            "outputs": [output_trees[number] for number in sorted(output_trees)],
            "nodes": _launches(self._recordings[-1], ranges_of_inputs),
            "state": preparation.state_names,
        }
        body = self._channel.attempt(Phase.EXPORT, lambda: encode_tree(facts))
        self._channel.reply(FrameKind.RECORDED, body)
        self._serve(recorder, ranges_of_inputs)

    def _prepare(self, order: RecordOrder, recorder: Recorder) -> _Preparation:
        candidate = self._candidate
        candidate.inputs.refresh()
        slots, imposed = candidate.inputs.announced([order.slots, order.imposed])
        warm_up_arguments = candidate.inputs.values(order.warm, candidate.device)
        state = {
            name: tensor
            for name, tensor in candidate.state.tensors(order.imposed).items()
            if tensor.numel() == imposed[name].numel()
        }
        restored = [(tensor, imposed[name].view(tensor.shape)) for name, tensor in state.items()]
        warm_up_output = self._channel.attempt(
            Phase.FORWARD,
            lambda: recorder.warm_up(candidate.model, warm_up_arguments, _WARM_UPS),
        )
        # A capture allocates memory of its own.
        give_back_spare()
        shared = (*tensors(slots), *imposed.values())
        lasting_tensors = (*tensors(warm_up_arguments), *tensors(warm_up_output), *shared)
        lasting = [storage_range(tensor) for tensor in lasting_tensors]
        places = candidate.outputs.places(order.outputs)
        places_of_state = self._places_of_state(order.left)
        state_names = sorted(name for name in order.left if name in state and _fits(order.left[name], state[name]))
        left = [(places_of_state[name], state[name]) for name in state_names]
        self._originals.restore()
        return _Preparation(slots, places, restored, left, lasting, state_names)

    def _places_of_state(self, trees: Mapping[str, TensorLeaf]) -> dict[str, torch.Tensor]:
        places = self._candidate.outputs.places([*trees.values()])
        return {name: places_of_leaf[0] for name, places_of_leaf in zip(trees, places, strict=True)}

    def _capture_each(self, counts: Sequence[int], capture: Callable[[Callable[..., Any], int], Captured]) -> None:
        """Capture each number of calls.

        Raises:
            NotCaptured: the calls cannot be replayed on new inputs.
            _Undescribed: an output cannot be described.
            Exceptions of the candidate and of the driver.
        """
        for count in counts:
            captured = capture(self._candidate.model, count)
            if reason := nodes.refused(captured.nodes):
                raise NotCaptured(reason)
            self._recordings.append(captured)

    def _capture(
        self,
        recorder: Recorder,
        preparation: _Preparation,
        copies: Callable[[int, Any], list[tuple[torch.Tensor, torch.Tensor]]],
        function: Callable[..., Any],
        count: int,
    ) -> Captured:
        with _without_waiting():
            return recorder.record(
                function,
                preparation.slots[:count],
                restored=preparation.restored,
                copies=copies,
                left=preparation.left,
                lasting=preparation.lasting,
                before_copies=self._originals.restore,
            )

    def _line_found_by_following(
        self, recorder: Recorder, capture: Callable[[Callable[..., Any], int], Captured]
    ) -> int:
        """The line that prevents a capture, if no exception names it: from a followed capture of one call.

        Returns:
            0 if the followed call does not show the line.
        """
        stream = recorder.stream.cuda_stream
        followed = FollowedCall(self._candidate.model, self._path, lambda: self._library.captured(stream))
        # The capture fails like the one before.
        with contextlib.suppress(Exception):
            captured = capture(followed, 1)
            refused = next(number for number, node in enumerate(captured.nodes) if nodes.refused([node]))
            return followed.line_of_node(captured.first + refused)
        return followed.line_of_error()

    def _ranges_of_inputs(self, slots: list[Any]) -> list[tuple[int, int]]:
        """Address ranges of the inputs, and of the model's parameters and buffers."""
        own_tensors = named_tensors(self._candidate.model).values()
        return [storage_range(tensor) for tensor in (*tensors(slots), *own_tensors)]

    def _serve(self, recorder: Recorder, ranges_of_inputs: list[tuple[int, int]]) -> None:
        recordings = [
            attrs.evolve(
                captured.recording,
                own=nodes.own_numbers(captured.nodes, captured.first),
                glue=nodes.glue_numbers(captured.nodes, captured.first, ranges_of_inputs),
            )
            for captured in self._recordings
        ]
        kinds = (int(FrameKind.REPLAY), int(FrameKind.REPLAYED))
        stream = self._channel.stream
        stream.setblocking(True)
        if not self._library.serve(stream.fileno(), kinds, recorder.stream.cuda_stream, recorder.gate_at, recordings):
            # The judge has ended.
            raise SystemExit


def _copies(
    order: RecordOrder, preparation: _Preparation, output_trees: dict[int, Any], number: int, output: Any
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of a place and a tensor of an output; none if the output does not fit the places.

    Args:
        output_trees: gets the tree that describes the output.
        number: of the call.

    Raises:
        _Undescribed: the output cannot be described.
    """
    output_trees[number], found = _described(ordered_as(output, order.outputs[number]))
    wanted = [*leaves_of(order.outputs[number])]
    fits = len(wanted) == len(found) and all(map(_fits, wanted, found))
    return list(zip(preparation.places[number], found, strict=True)) if fits else []


def _described(output: Any) -> tuple[Any, list[torch.Tensor]]:
    """The tree of an output, without places, and its tensors in the order of the leaves.

    Raises:
        _Undescribed: it contains an object that is neither a plain tensor nor a plain value.
    """
    found: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        found.append(tensor)
        return 0

    try:
        return described(output, place), found
    except TypeError as error:
        raise _Undescribed(error) from None


def _fits(leaf: TensorLeaf, tensor: torch.Tensor) -> bool:
    return tuple(tensor.shape) == leaf.shape and str(tensor.dtype) == f"torch.{leaf.dtype}" and tensor.is_cuda


@contextlib.contextmanager
def _without_waiting() -> Iterator[None]:
    """Have functions that wait for the device do nothing during a capture: the judge waits for each replay."""
    waits = ((torch.cuda, "synchronize"), (torch.cuda.Stream, "synchronize"), (torch.cuda.Event, "synchronize"))
    originals = [(owner, name, vars(owner)[name]) for owner, name in waits]
    try:
        for owner, name in waits:
            setattr(owner, name, _nothing)
        yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    """Does not wait."""


def _raise(error: BaseException) -> NoReturn:
    raise error


def _reason(error: BaseException) -> str:
    """The reason why a recording failed."""
    text = str(error).partition("\n")[0][:_MAX_REASON]
    known = next((reason for pattern, reason in _CAPTURE_ERRORS if pattern.search(text)), "")
    if known and known != text:
        return f"{known} ({text})"
    return text or type(error).__name__


def _line_of_candidate(error: BaseException, path: str) -> int:
    """The last line of the candidate's file in a traceback; 0 if there is none."""
    line = 0
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _launches(captured: Captured, ranges_of_inputs: list[tuple[int, int]]) -> list[list[Any]]:
    """Names of kernels with their kind and number of launches in all calls."""
    counts: dict[tuple[str, str], int] = {}
    kinds = nodes.kinds(captured.nodes, ranges_of_inputs)
    for node, kind in zip(captured.nodes, kinds, strict=True):
        key = (_demangled(node.name) or node.type, kind)
        counts[key] = counts.get(key, 0) + 1
    return [[name, kind, count] for (name, kind), count in counts.items()][:_MOST_KERNELS]


@functools.cache
def _demangled(symbol: str) -> str:
    """The name of a C++ function without parameters; other symbols unchanged."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return symbol
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = demangle(symbol.encode(), None, None, ctypes.byref(status))
    # Its memory is not freed: a few hundred bytes of a process that ends soon.
    text = ctypes.string_at(address).decode(errors="replace") if address else symbol
    return text.removeprefix("void ").partition("(")[0] or symbol
