"""Recordings and their passes: those of the candidate's runner, and those of the reference in the judge."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.peer.memory import ArenaExchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import lacks_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind, ProtocolError
from kernelrl_judge.protocol.trees import distinct, mapped, places, tensors
from kernelrl_judge.protocol.values import TensorLeaf, decode_tree, encode_tree, leaves_of
from kernelrl_judge.replay.capture import Captured, Recorder, storage_range
from kernelrl_judge.replay.library import STAMPS, Library, Stamps, error_text, stamps_at
from kernelrl_judge.replay.slope import Window
from kernelrl_judge.task.comparing import compare_described
from kernelrl_judge.task.reference import Reference

__all__ = ["CandidateSession", "NotRecorded", "ReferenceSession", "ReplayFailed"]

_ORDER = struct.Struct("<III")
_ANSWER = struct.Struct(f"<i{STAMPS}Q")
_QUEUE, _RELEASE, _SWITCH, _LEAVE = 1, 2, 3, 4
_WARM_UPS = 3
_MAX_TEXT = 400


class NotRecorded(Exception):
    """Calls cannot be captured.

    Args:
        reason: why.
        line: of the candidate's source; 0 where that is not known.
        of_reference: whether it is the reference, or the device.
        lacks_memory: whether fewer slots might do.
    """

    def __init__(self, reason: str, line: int = 0, *, of_reference: bool = False, lacks_memory: bool = False) -> None:
        super().__init__(reason)
        self.lacks_memory = lacks_memory
        self.reason = reason
        self.line = line
        self.of_reference = of_reference


class ReplayFailed(Exception):
    """The driver reports an error of a pass.

    Args:
        code: `CUresult`.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error: {error_text(code)}")
        self.code = code


@attrs.define(eq=False)
class CandidateSession:
    """The recordings of one runner. It serves passes from `record` until `leave`."""

    runner: Runner
    expect: Callable[..., Frame]
    """Receives the next frame, which has to be of a kind."""
    exchange: ArenaExchange
    nodes: list[tuple[str, str, int]] = attrs.field(factory=list)
    """Name, kind and number of launches of the nodes of the largest recording, as the runner reports them."""
    described: list[Any] = attrs.field(factory=list)
    """For each call of the largest recording a tree of what it returned."""
    _outputs: list[Any] = attrs.field(factory=list)
    _left: dict[str, Any] = attrs.field(factory=dict)
    _layout: Any = None
    _targets: list[list[torch.Tensor]] = attrs.field(factory=list)
    _counts: tuple[int, ...] = ()
    _has: frozenset[str] = frozenset()
    _is_serving: bool = False

    def record(
        self,
        slots: Sequence[list[Any]],
        warm: list[Any],
        like: Any,
        counts: Sequence[int],
        state: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Have the runner record the first `counts[i]` slots in graph i.

        Args:
            slots: inputs of each call; their values are replaced before every pass.
            warm: inputs of the calls before, which are not used again.
            like: an expected output.
            state: what calls of the reference change; restored before every pass, and read back after it.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `expect` raises.
        """
        self.leave()
        state = dict(state or {})
        trees, room = places({"outputs": [like] * len(slots), "left": state}, 1, "cuda")
        self._outputs, self._left = trees[0]["outputs"], trees[0]["left"]
        self.exchange.announce([*slots, warm], room)
        self._layout = self.exchange.share([*slots, warm])
        self._targets = [self.exchange.inputs_of(tree) for tree in self._layout[:-1]]
        del warm
        give_back_spare()
        order = {
            "slots": self._layout[:-1],
            "warm": self._layout[-1],
            "outputs": self._outputs,
            "left": self._left,
            "restored": sorted(state),
            "counts": list(counts),
        }
        self.runner.send(FrameKind.RECORD, encode_tree(order))
        facts = decode_tree(self.expect(FrameKind.RECORDED).body)
        match facts:
            case {"not_recorded": reason}:
                line = facts["line"] if isinstance(facts.get("line"), int) else 0
                raise NotRecorded(str(reason)[:_MAX_TEXT], line, lacks_memory=facts.get("memory") is True)
            case {"outputs": [*described], "nodes": nodes, "state": [*has]} if len(described) == max(counts):
                self.described, self.nodes, self._has = described, _nodes(nodes), frozenset(map(str, has))
            case _:
                raise ProtocolError("a recording without its outputs")
        self._counts = tuple(counts)
        self._is_serving = True

    def fits(self, slots: Sequence[list[Any]]) -> bool:
        """Whether inputs have the shapes, types and numbers of those that were recorded."""
        return self._is_serving and self.exchange.laid_out([*slots]) == self._layout[:-1]

    def mismatch(self, like: Any) -> Mismatch | None:
        """How a returned structure differs from the expected one."""
        for tree in self.described:
            found = compare_described(like, tree, "cuda")
            if found is not None:
                return found
        return None

    def write(self, slots: Sequence[list[Any]]) -> None:
        """Write the inputs of the next pass, which makes no more calls than these."""
        _write(self._targets, slots)

    def run(self, graph: int = 0) -> Window:
        """One pass.

        Raises:
            ReplayFailed: the driver reports an error.
        """
        self._order(_QUEUE, graph)
        started = time.perf_counter()
        stamps = self._order(_RELEASE, graph)
        return _window(stamps, self._counts[graph], self.runner.heard_at - started)

    def switch(self, graph: int, *, own: bool) -> None:
        """Turn the candidate's own kernels on or off."""
        self._order(_SWITCH, graph, int(own))

    def output(self, like: Any, call: int) -> Any:
        """A copy of what a call returned in the last pass."""
        return self.exchange.collect(like, _with_values(self._outputs[call], self.described[call]))

    def outputs(self, calls: int) -> list[torch.Tensor]:
        """Copies of what the last pass returned: for each tensor of an output one with all calls, the number of the
        call as first dimension."""
        made = [[*leaves_of(tree)] for tree in self._outputs[:calls]]
        found = zip(*made, strict=True)
        return [self.exchange.outputs_of(row).clone() for row in found if 0 not in row[0].shape]

    def left(self, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies of what the last pass left in the state, of what the candidate has of it."""
        wanted = {name: tensor for name, tensor in like.items() if name in self._has}
        found: dict[str, torch.Tensor] = self.exchange.collect(wanted, self._left)
        return found

    def inputs(self, like: list[Any], call: int) -> Any:
        """Copies of the inputs of a call as the last pass left them."""
        return self.exchange.read_inputs(like, self._layout[call])

    def leave(self) -> None:
        """Have the runner take other orders again."""
        if self._is_serving:
            self._is_serving = False
            self._order(_LEAVE)

    def _order(self, action: int, graph: int = 0, value: int = 0) -> Stamps:
        self.runner.send(FrameKind.REPLAY, _ORDER.pack(action, graph, value))
        body = self.expect(FrameKind.REPLAYED, spin=action == _RELEASE).body
        if len(body) != _ANSWER.size:
            raise ProtocolError("an answer of another size")
        code, *stamps = _ANSWER.unpack(body)
        if code:
            raise ReplayFailed(code)
        return Stamps(*stamps)


class ReferenceSession:
    """The recordings of the reference, in this process; its passes are those of a `CandidateSession`.

    Args:
        slots: inputs of each call, of which it keeps copies.
        counts: number of calls of each graph.

    Raises:
        NotRecorded: the reference cannot be recorded.
    """

    def __init__(
        self,
        library: Library,
        recorder: Recorder,
        reference: Reference,
        slots: Sequence[list[Any]],
        counts: Sequence[int],
        function: Callable[..., Any] | None = None,
    ) -> None:
        self._library = library
        self._recorder = recorder
        self._slots = [mapped(values, torch.clone) for values in slots]
        self._targets = [[distinct(tensor) for tensor in tensors(values) if tensor.numel()] for values in self._slots]
        self._counts = tuple(counts)
        state = reference.changed_state
        restored = [(tensor, state[name]) for name, tensor in reference.current().items() if name in state]
        model = reference.model if function is None else function
        try:
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
        """Write the inputs of the next pass, which makes no more calls than these."""
        _write(self._targets, slots)

    def run(self, graph: int = 0) -> Window:
        """One pass."""
        recording, stream = self._recordings[graph].recording, self._recorder.stream.cuda_stream
        turn = self._recorder.next_turn()
        self._library.queue(recording, stream, self._recorder.gate_at, turn)
        started = time.perf_counter()
        self._library.release(recording, stream, self._recorder.gate_at, turn)
        return _window(stamps_at(recording.stamps_at), self._counts[graph], time.perf_counter() - started)

    def outputs(self, calls: int) -> list[torch.Tensor]:
        """As `CandidateSession.outputs`; the next pass overwrites them."""
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


def _window(stamps: Stamps, calls: int, host_s: float) -> Window:
    return Window(
        calls=calls,
        calls_us=stamps.calls_us,
        copies_us=(stamps.last_ns - stamps.end_ns) / 1e3,
        whole_us=(stamps.last_ns - stamps.begin_ns + stamps.sm_ns) / 1e3,
        host_us=host_s * 1e6,
        sm_ghz=stamps.sm_ghz,
    )


def _with_values(places_tree: Any, described: Any) -> Any:
    """Places of tensors, and what was described in the place of everything else."""
    if isinstance(places_tree, TensorLeaf):
        return places_tree
    if isinstance(places_tree, list | tuple):
        return [_with_values(*pair) for pair in zip(places_tree, described, strict=True)]
    if isinstance(places_tree, dict):
        return {key: _with_values(value, described[key]) for key, value in places_tree.items()}
    return described


def _nodes(value: Any) -> list[tuple[str, str, int]]:
    """The runner's list of nodes; from an untrusted process."""
    found = []
    for row in value if isinstance(value, list) else []:
        match row:
            case [str(name), "own" | "library" | "glue" as kind, int(launches)]:
                found.append((name, kind, launches))
    return found
