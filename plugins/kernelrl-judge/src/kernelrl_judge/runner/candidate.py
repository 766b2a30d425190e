"""The candidate in its runner: how it is loaded and constructed, and what every order does with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from kernelrl_judge.protocol.failures import Stage
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.values import decode_tree
from kernelrl_judge.runner.dialogue import Dialogue
from kernelrl_judge.runner.memory import Inputs, Outputs, fill_fresh_memory
from kernelrl_judge.runner.state import State

__all__ = ["Candidate"]

_FRESH_BYTE = 0xFE
"""What the processor's memory holds when it is allocated outside of timed calls: a large negative number, or none."""


class Candidate:
    """What the judge's orders are about.

    Args:
        mode: of the zygote.
        path: where its source is written.
    """

    def __init__(
        self, dialogue: Dialogue, inputs: Inputs, outputs: Outputs, backend: Any, mode: str, path: str
    ) -> None:
        self.dialogue = dialogue
        self.inputs = inputs
        self.outputs = outputs
        self.mode = mode
        self.device = "cuda" if mode == "gpu" else "cpu"
        self.model: Any = None
        """What was constructed."""
        self.state = State()
        self._backend = backend
        self._path = path
        self._module_class: Any = None

    # --- orders -----------------------------------------------------------------------------------------------------

    def attach(self, frame: Frame) -> None:
        """Map the device's memory in which inputs and outputs lie from now on."""
        from kernelrl_judge.protocol.device_memory import Arena

        sizes = decode_tree(frame.body)
        for memory, size, descriptor in zip(
            (self.inputs, self.outputs), (sizes["inputs"], sizes["outputs"]), frame.descriptors, strict=True
        ):
            if memory.arena is not None:
                memory.arena.close()
            # A kernel may work in place on its inputs. The judge reads its own of them.
            memory.arena = Arena.attach(descriptor, size, 0)
            os.close(descriptor)

    def load(self, frame: Frame) -> None:
        """Import its source."""
        order = decode_tree(frame.body)
        stream = self.dialogue.stream
        self.inputs.refresh()
        source = self.inputs.text(order["source_offset"], order["source_bytes"])
        with open(self._path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(source)
        options: dict[str, Any] = json.loads(order["options"])
        if order["builds"]:
            from kernelrl_judge.runner import builds

            builds.install(stream, idle=order["disabled"] and self.mode == "cpu")
        if self.mode == "cpu":
            fill_fresh_memory(_FRESH_BYTE)
        if order["disabled"]:
            if self.mode == "gpu":
                from kernelrl_judge.runner.disabling import poison_memory

                poison_memory()
            self._backend.disable_kernels()
        attempt = self.dialogue.attempt
        self._module_class = attempt(Stage.LOAD, lambda: self._backend.load(self._path, options))
        if self.mode == "gpu" and "triton" in sys.modules:
            from kernelrl_judge.runner import turns

            turns.install(
                stream, lambda: self.dialogue.order in (FrameKind.CONSTRUCT, FrameKind.CALL, FrameKind.RECORD)
            )
        if self.mode == "compile" and self._backend.checks_compilation:
            module = sys.modules.get("candidate")
            note = attempt(Stage.LOAD, lambda: str(self._backend.compile_check(module, options)))
            self.dialogue.answer(FrameKind.LOADED, note)
        else:
            self.dialogue.answer(FrameKind.LOADED)

    def construct(self, frame: Frame) -> None:
        """Construct its module and give it the state of the reference."""
        import torch

        from kernelrl_judge.protocol.call import seed

        order = decode_tree(frame.body)
        self.inputs.refresh()
        dtype = getattr(torch, order["dtype"])

        def make() -> tuple[Any, dict[str, Any]]:
            arguments = self.inputs.values(order["arguments"], "cpu")
            keywords = self.inputs.values(order["keywords"], "cpu")
            seed(order["init_seed"], self.device)
            with torch.no_grad():
                model = self._module_class(*arguments, **keywords)
                if isinstance(model, torch.nn.Module):
                    model = model.to(device=self.device)
                    for tensor in (*model.parameters(), *model.buffers()):
                        if tensor.is_floating_point():
                            tensor.data = tensor.data.to(dtype)
            state = self.inputs.values(order["state"], self.device)
            note = self.state.give(model, state)
            # The judge overwrites the shared memory that the state is copied from.
            self.wait()
            return model, note

        self.model, note = self.dialogue.attempt(Stage.CONSTRUCT, make)
        self.dialogue.answer(FrameKind.READY, note)

    # --- steps ------------------------------------------------------------------------------------------------------

    def impose(self, state: Any) -> None:
        """Give it a state, as its judge describes it; where that is empty, the state stays."""
        values = self.inputs.values(state, self.device)
        if values:
            self.state.impose(values)

    def forward(self, arguments: Sequence[Any]) -> Any:
        """Call it and wait for the device."""
        import torch

        with torch.no_grad():
            result = self.model(*arguments)
            self.wait()
        return result

    def exported(self, values: Any, beside: list[Any] | None = None) -> Any:
        """As `Outputs.export`, when the device has written everything."""
        tree = self.outputs.export(values, beside)
        self.wait()
        return tree

    def wait(self) -> None:
        """Wait for the device."""
        if self.mode == "gpu":
            import torch

            torch.cuda.synchronize()
