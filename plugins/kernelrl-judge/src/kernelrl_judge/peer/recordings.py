"""Recordings and their replays: those of the candidate in its runner, and those of the reference in the judge."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import torch

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.peer.memory import ArenaExchange
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import lacks_memory
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.orders import RecordOrder
from kernelrl_judge.protocol.trees import distinct, mapped, places, tensors
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, leaves_of
from kernelrl_judge.replay.capture import Captured, Recorder, storage_range
from kernelrl_judge.replay.library import STAMPS, Stamps, error_text, stamps_at
from kernelrl_judge.replay.slope import ReplayWindow
from kernelrl_judge.task.comparison import compare_described
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.torch_settings import settings_of_task

__all__ = ["CandidateRecordings", "DeviceNode", "NotRecorded", "ReferenceRecordings", "ReplayFailed"]

_ORDER = struct.Struct("<III")
_REPLY = struct.Struct(f"<i{STAMPS}Q")
_QUEUE, _RELEASE, _SWITCH, _LEAVE = 1, 2, 3, 4
_OWN_ON, _GLUE_ON = 1, 2
_WARM_UPS = 3
_MAX_REASON_CHARACTERS = 400


class NotRecorded(Exception):
    """Calls cannot be recorded.

    Args:
        reason: why.
        line: line of the candidate's source; 0 where that is not known.
        of_reference: the calls are those of the reference, or the device cannot record.
        lacks_memory: fewer input slots may fit into the memory.
    """

    def __init__(self, reason: str, line: int = 0, *, of_reference: bool = False, lacks_memory: bool = False) -> None:
        super().__init__(reason)
        self.lacks_memory = lacks_memory
        self.reason = reason
        self.line = line
        self.of_reference = of_reference


class ReplayFailed(Exception):
    """The driver reports an error of a replay.

    Args:
        code: `CUresult`.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error: {error_text(code)}")
        self.code = code


@attrs.frozen
class DeviceNode:
    """A kernel, copy or fill of a recording, as the runner reports it."""

    name: str
    kind: Literal["own", "library", "glue"]
    launches: int
    """Number of launches in all calls of the recording."""


class CandidateRecordings:
    """The recordings of one candidate. Its runner serves replays from `record` until `leave`.

    Args:
        exchange: that of the session.
    """

    def __init__(self, session: RunnerSession, exchange: ArenaExchange) -> None:
        self._process = session.process
        self._channel = session.channel
        self._exchange = exchange
        self.nodes: list[DeviceNode] = []
        """Nodes of the largest recording."""
        self.described: list[Any] = []
        """For each call of the largest recording a tree that describes its output."""
        self._outputs: list[Any] = []
        self._left: dict[str, Any] = {}
        self._layout: Any = None
        self._targets: list[list[torch.Tensor]] = []
        self._imposed_targets: dict[str, torch.Tensor] = {}
        self._counts: tuple[int, ...] = ()
        self._has: frozenset[str] = frozenset()
        self._is_serving = False

    def record(
        self,
        slots: Sequence[list[Any]],
        warm: list[Any],
        like: Any,
        counts: Sequence[int],
        *,
        imposed: Mapping[str, torch.Tensor],
        changed: Mapping[str, torch.Tensor],
    ) -> None:
        """Have the runner record the first `counts[i]` slots in graph i.

        Args:
            slots: inputs of each call; their values are replaced before every replay.
            warm: inputs of the warm-up calls, which are not used again.
            like: an expected output.
            imposed: parameters and buffers that the model gets at the start of every replay; their values are replaced
                before it.
            changed: those that calls of the reference change; read back after every replay.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `RunnerChannel.expect` raises.
        """
        self.leave()
        trees, output_bytes = places({"outputs": [like] * len(slots), "left": dict(changed)}, 1, "cuda")
        self._outputs = trees[0]["outputs"]
        self._left = trees[0]["left"]
        shared = {"slots": [*slots], "warm": warm, "imposed": dict(imposed)}
        self._exchange.announce(shared, output_bytes)
        layout = self._exchange.share(shared)
        self._layout = layout["slots"]
        self._targets = [self._exchange.inputs_of(tree) for tree in self._layout]
        self._imposed_targets = {
            name: self._exchange.inputs_of(leaf)[0] for name, leaf in layout["imposed"].items() if imposed[name].numel()
        }
        del warm, shared
        give_back_spare()
        order = RecordOrder(
            slots=self._layout,
            warm=layout["warm"],
            outputs=self._outputs,
            left=self._left,
            imposed=layout["imposed"],
            counts=list(counts),
        )
        reply = self._channel.order(FrameKind.RECORD, order.encoded(), reply=FrameKind.RECORDED)
        facts = decode_tree(reply.body)
        match facts:
            case {"not_recorded": reason}:
                line = facts["line"] if isinstance(facts.get("line"), int) else 0
                text = str(reason)[:_MAX_REASON_CHARACTERS]
                raise NotRecorded(text, line, lacks_memory=facts.get("memory") is True)
            case {"outputs": [*described], "nodes": nodes, "state": [*has]} if len(described) == max(counts):
                self.described = described
                self.nodes = _nodes(nodes)
                self._has = frozenset(map(str, has))
            case _:
                raise ProtocolError("a recording without its outputs")
        self._counts = tuple(counts)
        self._is_serving = True

    def fits(self, slots: Sequence[list[Any]]) -> bool:
        """Whether inputs have the shapes, dtypes and number of the recorded ones."""
        return self._is_serving and self._exchange.laid_out({"slots": [*slots]})["slots"] == self._layout

    def mismatch(self, like: Any) -> Mismatch | None:
        """Difference between a returned structure and the expected one."""
        for tree in self.described:
            found = compare_described(like, tree, "cuda")
            if found is not None:
                return found
        return None

    def write(self, slots: Sequence[list[Any]], imposed: Mapping[str, torch.Tensor]) -> None:
        """Write the inputs and the state of the next replay, which has at most as many calls.

        Args:
            imposed: values of the state that `record` got.
        """
        targets = self._imposed_targets
        if targets:
            torch._foreach_copy_([*targets.values()], [distinct(imposed[name]) for name in targets])
        _write(self._targets, slots)

    def run(self, graph: int = 0) -> ReplayWindow:
        """One replay.

        Raises:
            ReplayFailed: the driver reports an error.
        """
        self._order(_QUEUE, graph)
        started = time.perf_counter()
        stamps = self._order(_RELEASE, graph)
        return _window(stamps, self._counts[graph], self._process.received_at - started)

    def switch(self, graph: int, *, own: bool, glue: bool) -> None:
        """Turn the candidate's own kernels, and copies and large fills, on or off."""
        self._order(_SWITCH, graph, _OWN_ON * own | _GLUE_ON * glue)

    def output(self, like: Any, call: int) -> Any:
        """A copy of the output of a call in the last replay."""
        return self._exchange.collect(like, _with_values(self._outputs[call], self.described[call]))

    def outputs(self, calls: int) -> list[torch.Tensor]:
        """Copies of the outputs of the last replay: for each tensor of an output one with all calls, the number of the
        call as first dimension."""
        leaves_by_call = [[*leaves_of(tree)] for tree in self._outputs[:calls]]
        leaves_by_output = zip(*leaves_by_call, strict=True)
        return [self._exchange.outputs_of(row).clone() for row in leaves_by_output if 0 not in row[0].shape]

    def left(self, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies of the state after the last replay, as far as the candidate has it."""
        wanted = {name: tensor for name, tensor in like.items() if name in self._has}
        found: dict[str, torch.Tensor] = self._exchange.collect(wanted, self._left)
        return found

    def inputs(self, like: list[Any], call: int) -> Any:
        """Copies of the inputs of a call after the last replay."""
        return self._exchange.read_inputs(like, self._layout[call])

    def leave(self) -> None:
        """End serving replays, so that the runner takes other orders."""
        if self._is_serving:
            self._is_serving = False
            self._order(_LEAVE)

    def _order(self, action: int, graph: int = 0, value: int = 0) -> Stamps:
        order = _ORDER.pack(action, graph, value)
        reply = self._channel.order(FrameKind.REPLAY, order, reply=FrameKind.REPLAYED, spin=action == _RELEASE)
        if len(reply.body) != _REPLY.size:
            raise ProtocolError("a reply of another size")
        code, *stamps = _REPLY.unpack(reply.body)
        if code:
            raise ReplayFailed(code)
        return Stamps(*stamps)


class ReferenceRecordings:
    """The recordings of the reference in this process, with the replays of `CandidateRecordings`.

    Args:
        slots: inputs of each call, which are copied.
        counts: number of calls of each graph.

    Raises:
        NotRecorded: the reference cannot be recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        reference: Reference,
        slots: Sequence[list[Any]],
        counts: Sequence[int],
        function: Callable[..., Any] | None = None,
    ) -> None:
        self._library = recorder.library
        self._recorder = recorder
        self._slots = [mapped(values, torch.clone) for values in slots]
        self._targets = [[distinct(tensor) for tensor in tensors(values) if tensor.numel()] for values in self._slots]
        self._counts = tuple(counts)
        state = reference.changed_state
        restored = [(tensor, state[name]) for name, tensor in reference.current().items() if name in state]
        model = reference.model if function is None else function
        try:
            with settings_of_task(reference.task_id):
                last = recorder.warm_up(model, self._slots[0], _WARM_UPS)
                give_back_spare()
                lasting = [storage_range(tensor) for tensor in (*tensors(self._slots), *tensors(last))]
                self._outputs = [
                    torch.empty((len(slots), *tensor.shape), dtype=tensor.dtype, device=reference.device)
                    for tensor in tensors(reference.like)
                ]
                self._recordings: list[Captured] = [
                    recorder.record(
                        model,
                        self._slots[:count],
                        restored=restored,
                        copies=lambda number, output: [
                            (made[number], tensor) for made, tensor in zip(self._outputs, tensors(output), strict=True)
                        ],
                        lasting=lasting,
                    )
                    for count in counts
                ]
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise NotRecorded(reason, of_reference=True, lacks_memory=lacks_memory(str(error))) from None
        finally:
            reference.restore()

    def write(self, slots: Sequence[list[Any]]) -> None:
        """Write the inputs of the next replay, which has at most as many calls."""
        _write(self._targets, slots)

    def run(self, graph: int = 0) -> ReplayWindow:
        """One replay."""
        recording, stream = self._recordings[graph].recording, self._recorder.stream.cuda_stream
        number = self._recorder.next_replay()
        self._library.queue(recording, stream, self._recorder.gate_at, number)
        started = time.perf_counter()
        self._library.release(recording, stream, self._recorder.gate_at, number)
        return _window(stamps_at(recording.stamps_at), self._counts[graph], time.perf_counter() - started)

    def outputs(self, calls: int) -> list[torch.Tensor]:
        """As `CandidateRecordings.outputs`; the next replay overwrites them."""
        return [tensor[:calls] for tensor in self._outputs if tensor.numel()]

    def close(self) -> None:
        """Free the graphs."""
        for made in self._recordings:
            self._library.destroy(made.recording.ready)
        self._recordings.clear()


def _write(targets: Sequence[Sequence[torch.Tensor]], slots: Sequence[list[Any]]) -> None:
    given = [tensor for values in slots for tensor in tensors(values) if tensor.numel()]
    if given:
        places = [place for row in targets[: len(slots)] for place in row]
        torch._foreach_copy_(places, [distinct(tensor) for tensor in given])
    torch.cuda.synchronize()


def _window(stamps: Stamps, calls: int, host_s: float) -> ReplayWindow:
    return ReplayWindow(
        calls=calls,
        calls_us=stamps.calls_us,
        copies_us=(stamps.last_ns - stamps.end_ns) / 1e3,
        whole_us=(stamps.last_ns - stamps.begin_ns + stamps.sm_ns) / 1e3,
        host_us=host_s * 1e6,
        sm_ghz=stamps.sm_ghz,
    )


def _with_values(places_tree: Any, described: Any) -> Any:
    """The places of tensors, and the described values of everything else."""
    if isinstance(places_tree, TensorLeaf):
        return places_tree
    if isinstance(places_tree, list | tuple):
        return [_with_values(*pair) for pair in zip(places_tree, described, strict=True)]
    if isinstance(places_tree, dict):
        return {key: _with_values(value, described[key]) for key, value in places_tree.items()}
    return described


def _nodes(value: Any) -> list[DeviceNode]:
    """The runner's list of nodes; from an untrusted process."""
    found = []
    for row in value if isinstance(value, list) else []:
        match row:
            case [str(name), "own" | "library" | "glue" as kind, int(launches)]:
                found.append(DeviceNode(name, kind, launches))
    return found
