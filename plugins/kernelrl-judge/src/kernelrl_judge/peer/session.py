"""One candidate in its runner: start, load, construct. Calls and recordings build on a session."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, Isolation
from kernelrl_judge.peer.builds import CandidateBuilds
from kernelrl_judge.peer.channel import RunnerChannel
from kernelrl_judge.peer.lease import CandidateLease, patience_s
from kernelrl_judge.peer.memory import ArenaExchange, Arenas, Exchange
from kernelrl_judge.peer.process import RunnerProcess
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.orders import AttachOrder, ConstructOrder, LoadOrder
from kernelrl_judge.protocol.values import decode_tree
from kernelrl_judge.task.parameter_match import ParameterMatch, read_parameter_match
from kernelrl_judge.task.reference import Reference
from kernelrl_sandbox.privileges import isolation_level

__all__ = ["RunnerSession"]


@attrs.define(eq=False)
class RunnerSession:
    """One candidate in its runner."""

    process: RunnerProcess
    lease: CandidateLease
    builds: CandidateBuilds
    device: str
    """`cuda` or `cpu`."""
    channel: RunnerChannel = attrs.field(init=False)
    exchange: Exchange = attrs.field(init=False)
    """Memory for inputs and outputs: host memory until `share_device_memory`."""
    parameters: str = ""
    """How the candidate's parameters were matched with those of the reference; empty before its construction."""

    def __attrs_post_init__(self) -> None:
        self.channel = RunnerChannel(self.process, self.lease, self.builds)
        self.exchange = self.process.files

    def start(self, settings: EvaluationSettings) -> Isolation:
        """Wait until the sandbox is closed, and let the time of the candidate begin.

        Returns:
            Level of the isolation, and the missing layers.
        """
        frame = self.process.wait_for_start()
        self.process.begin(limit_s=settings.timeout_s, patience_s=patience_s(self.device, timed=settings.timing))
        if frame.kind is not FrameKind.STARTED:
            raise ProtocolError(f"{frame.kind.name} in the place of STARTED")
        missing = [str(layer) for layer in decode_tree(frame.body)]
        return Isolation(isolation_level(missing), tuple(missing))

    def load(
        self,
        source: str,
        options: Mapping[str, Any],
        *,
        package: Mapping[str, str],
        builds: bool,
        kernels_off: bool,
    ) -> str:
        """Import the candidate.

        Args:
            options: of the backend.
            package: files that the candidate may import (`EvaluationRequest.package`).
            builds: whether the build service compiles its extensions.
            kernels_off: have its kernels do nothing but copy.

        Returns:
            In mode `compile` the names of the kernels that were compiled; otherwise an empty text.

        Raises:
            What `RunnerChannel.expect` raises.
        """
        text = source.encode("utf-8", "surrogatepass")
        files = json.dumps(dict(package)).encode("ascii") if package else b""
        self.process.files.share_text(text + files)
        order = LoadOrder(
            source_offset=0,
            source_bytes=len(text),
            package_bytes=len(files),
            options=json.dumps(dict(options)),
            disabled=kernels_off,
            builds=builds,
        )
        frame = self.channel.order(FrameKind.LOAD, order.encoded(), reply=FrameKind.LOADED)
        return str(decode_tree(frame.body)) if frame.body else ""

    def share_device_memory(self, arenas: Arenas) -> None:
        """Use device memory for tensors from now on. Nothing of an earlier candidate is left in it."""
        arenas.clear()
        self.exchange = ArenaExchange(arenas, self._attach)

    @property
    def device_exchange(self) -> ArenaExchange | None:
        """The shared device memory; None where only host memory is shared."""
        return self.exchange if isinstance(self.exchange, ArenaExchange) else None

    def _attach(self, arenas: Arenas) -> None:
        order = AttachOrder(inputs=arenas.inputs.size, outputs=arenas.outputs.size)
        descriptors = [arenas.inputs.export(), arenas.outputs.export()]
        try:
            self.process.send(FrameKind.ATTACH, order.encoded(), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def construct(self, reference: Reference) -> ParameterMatch:
        """Have the candidate construct its model with the arguments and parameters of a reference.

        Raises:
            What `RunnerChannel.expect` raises.
        """
        self.exchange.make_room(1)
        given = {"arguments": reference.arguments, "keywords": reference.keywords, "state": reference.state}
        shared = self.exchange.share(given)
        order = ConstructOrder(
            arguments=shared["arguments"],
            keywords=shared["keywords"],
            state=shared["state"],
            dtype="" if reference.cast is None else str(reference.cast).removeprefix("torch."),
            init_seed=reference.init_seed,
        )
        frame = self.channel.order(FrameKind.CONSTRUCT, order.encoded(), reply=FrameKind.READY)
        note = decode_tree(frame.body)
        self.parameters = _parameters_text(note, len(reference.state))
        return read_parameter_match(note, reference.state)


def _parameters_text(note: Any, n_expected: int) -> str:
    """How the candidate's parameters came to equal those of the reference.

    Args:
        note: of the runner, which is untrusted.
        n_expected: number of parameters and buffers of the reference.
    """
    if not n_expected:
        return "the reference has none"
    n_matched = note.get("matched", 0) if isinstance(note, dict) else 0
    is_renamed = isinstance(note, dict) and note.get("renamed")
    how = "values and shape" if is_renamed else "name and shape"
    if n_matched == n_expected:
        return f"matched by {how}"
    return f"{n_matched} of {n_expected} matched by {how}; the others as drawn in order of construction"
