"""The candidate in its runner: its loading and construction, and the steps that several orders share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelrl_judge.protocol.call import seed
from kernelrl_judge.protocol.device_memory import Arena
from kernelrl_judge.protocol.failures import Phase
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.orders import AttachOrder, ConstructOrder, LoadOrder
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.runner import own_package
from kernelrl_judge.runner.allocations import fill_fresh_memory
from kernelrl_judge.runner.judge_channel import JudgeChannel
from kernelrl_judge.runner.model_state import ModelState
from kernelrl_judge.runner.shared_memory import SharedInputs, SharedOutputs

__all__ = ["Candidate"]

_FRESH_BYTE = 0xFE
"""Content of host memory that is allocated outside of windows: as a number it is a large negative one, or NaN."""
_COMPILING_ORDERS = (FrameKind.CONSTRUCT, FrameKind.CALL, FrameKind.RECORD)
"""Orders without timed calls, in which Triton may compile kernels."""


class Candidate:
    """The candidate of a runner.

    Args:
        mode: of the zygote.
        path: file for its source.
    """

    def __init__(
        self,
        channel: JudgeChannel,
        inputs: SharedInputs,
        outputs: SharedOutputs,
        backend: Any,
        mode: str,
        path: str,
    ) -> None:
        self.channel = channel
        self.inputs = inputs
        self.outputs = outputs
        self.mode = mode
        self.device = "cuda" if mode == "gpu" else "cpu"
        self.model: Any = None
        """The constructed object."""
        self.state = ModelState()
        self._backend = backend
        self._path = path
        self._module_class: Any = None

    # --- orders -----------------------------------------------------------------------------------------------------

    def attach(self, frame: Frame) -> None:
        """Map the device memory in which inputs and outputs are from now on."""
        order = AttachOrder.decoded(frame.body)
        inputs_descriptor, outputs_descriptor = frame.descriptors
        _map_arena(self.inputs, order.inputs, inputs_descriptor)
        _map_arena(self.outputs, order.outputs, outputs_descriptor)

    def load(self, frame: Frame) -> None:
        """Import the candidate's source."""
        order = LoadOrder.decoded(frame.body)
        self.inputs.refresh()
        self._write_source(order)
        options: dict[str, Any] = json.loads(order.options)
        if order.builds:
            self._replace_load_inline(idle=order.disabled and self.mode == "cpu")
        if self.mode == "cpu":
            fill_fresh_memory(_FRESH_BYTE)
        if self.mode == "gpu":
            from kernelrl_judge.runner import own_graphs

            own_graphs.install()
        if order.disabled:
            self._disable_kernels()
        self._module_class = self.channel.attempt(Phase.LOAD, lambda: self._backend.load(self._path, options))
        if self.mode == "gpu" and "triton" in sys.modules:
            self._release_device_while_compiling()
        if self.mode == "compile" and self._backend.checks_compilation:
            module = sys.modules.get("candidate")
            report = self.channel.attempt(Phase.LOAD, lambda: str(self._backend.compile_check(module, options)))
            self.channel.reply(FrameKind.LOADED, encode_tree(report))
        else:
            self.channel.reply(FrameKind.LOADED)

    def construct(self, frame: Frame) -> None:
        """Construct `ModelNew` and give it the state of the reference."""
        order = ConstructOrder.decoded(frame.body)
        self.inputs.refresh()
        arguments = self.inputs.values(order.arguments, "cpu")
        keywords = self.inputs.values(order.keywords, "cpu")
        self.model, match = self.channel.attempt(Phase.CONSTRUCT, lambda: self._constructed(order, arguments, keywords))
        self.channel.reply(FrameKind.READY, encode_tree(match))

    # --- steps ------------------------------------------------------------------------------------------------------

    def impose(self, state: Any) -> None:
        """Give the model the state that a tree describes. An empty tree changes nothing."""
        values = self.inputs.values(state, self.device)
        if values:
            self.state.impose(values)

    def forward(self, arguments: Sequence[Any]) -> Any:
        """Call the model and wait for the device."""
        with torch.no_grad():
            result = self.model(*arguments)
            self.wait()
        return result

    def exported(self, output: Any, others: Sequence[Any]) -> Any:
        """Write an output and other values to the shared memory and wait for the device; returns their trees."""
        tree = self.outputs.export(output, others)
        self.wait()
        return tree

    def wait(self) -> None:
        """Wait for the device."""
        if self.mode == "gpu":
            torch.cuda.synchronize()

    # --- parts of loading and construction --------------------------------------------------------------------------

    def _write_source(self, order: LoadOrder) -> None:
        source = self.inputs.text(order.source_offset, order.source_bytes)
        with open(self._path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(source)
        if order.package_bytes:
            packed = self.inputs.text(order.source_offset + order.source_bytes, order.package_bytes)
            own_package.install(json.loads(packed), self._path)

    def _replace_load_inline(self, *, idle: bool) -> None:
        from kernelrl_judge.runner import inline_builds

        inline_builds.install(self.channel.stream, idle=idle)

    def _disable_kernels(self) -> None:
        if self.mode == "gpu":
            from kernelrl_judge.runner.disabling import poison_memory

            poison_memory()
        self._backend.disable_kernels()

    def _release_device_while_compiling(self) -> None:
        from kernelrl_judge.runner import compile_pauses

        channel = self.channel
        compile_pauses.install(channel.stream, lambda: channel.order in _COMPILING_ORDERS)

    def _constructed(
        self, order: ConstructOrder, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The model, and a description of how its state matched."""
        seed(order.init_seed, self.device)
        with torch.no_grad():
            model = self._module_class(*arguments, **keywords)
            if isinstance(model, torch.nn.Module):
                model = model.to(device=self.device)
                if order.dtype:
                    _cast(model, getattr(torch, order.dtype))
        state = self.inputs.values(order.state, self.device)
        match = self.state.give(model, state)
        # The state is copied from shared memory, which the judge overwrites after the reply.
        self.wait()
        return model, match


def _map_arena(memory: SharedInputs | SharedOutputs, size: int, descriptor: int) -> None:
    if memory.arena is not None:
        memory.arena.close()
    # A kernel may write to its inputs. The judge has its own copies.
    memory.arena = Arena.attach(descriptor, size, 0)
    os.close(descriptor)


def _cast(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast floating-point parameters and buffers."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
