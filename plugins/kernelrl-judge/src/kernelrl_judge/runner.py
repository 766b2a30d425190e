"""The runner: one candidate, in a fork of the zygote, killed after it.

It is given the candidate's source, constructor arguments, the reference's state, and the inputs of one call at a
time. It knows neither the reference nor a seed of the inputs nor an expected output. Candidate code shares this
process, so nothing that leaves it is believed: see `kernelrl_judge.protocol`.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import mmap
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kernelrl_judge import sandbox
from kernelrl_judge.protocol import (
    DTYPES,
    Failure,
    FrameKind,
    Stage,
    TensorLeaf,
    decode_tree,
    encode_failure,
    encode_tree,
    receive,
    send,
)

_MAX_ERROR_CHARACTERS = 32_000
_ALIGNMENT = 64
_MEMORY_SIGNS = ("can't allocate memory", "out of memory", "std::bad_alloc", "Cannot allocate memory")


def main(descriptors: Sequence[int], request: bytes, backend: Any, mode: str, scratch: str) -> NoReturn:
    """Serve one candidate and end. Never returns, whatever the candidate does."""
    code = 0
    try:
        stream, inputs, outputs, log, status = descriptors
        settings = json.loads(request)
        environment = {**backend.environment(mode), "OMP_NUM_THREADS": "1"}
        missing = sandbox.enter(
            memory_mib=settings["memory_mib"] if mode != "gpu" else None,
            cpu_s=settings["cpu_s"],
            scratch=scratch,
            keep={stream, inputs, outputs, log},
            status=status,
        )
        for signum in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        sandbox.scrub(scratch, environment)
        connection = socket.socket(fileno=stream)
        send(connection, FrameKind.STARTED, encode_tree(missing))
        _serve(connection, inputs, outputs, backend, mode, scratch)
    except BaseException:
        # The judge sees the closed stream; what happened here is for the log only.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        code = 70
    finally:
        _flush()
        os._exit(code)


def _serve(stream: socket.socket, inputs: int, outputs: int, backend: Any, mode: str, scratch: str) -> None:
    path = os.path.join(scratch, "candidate.py")

    def attempt(stage: Stage, work: Callable[[], Any]) -> tuple[bool, Any]:
        try:
            return True, work()
        except BaseException as error:
            kind, name, text = _describe(error, backend, path)
            send(stream, FrameKind.FAILED, encode_failure(Failure(stage, kind, name, text)))
            return False, None

    frame = receive(stream)
    if frame is None or frame.kind is not FrameKind.LOAD:
        return
    order = decode_tree(frame.body)
    shared = _Shared(inputs)
    source = shared.text(order["source_offset"], order["source_bytes"])
    with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        file.write(source)
    options = json.loads(order["options"])
    done, model_class = attempt(Stage.LOAD, lambda: backend.load(path, options))
    if not done:
        return
    send(stream, FrameKind.LOADED)
    done, ready = attempt(Stage.CONSTRUCT, lambda: _construct(model_class, order, shared, mode))
    if not done:
        return
    model, note = ready
    send(stream, FrameKind.READY, encode_tree(note))
    while True:
        frame = receive(stream)
        if frame is None or frame.kind is not FrameKind.CALL:
            return
        call = decode_tree(frame.body)
        done, values = attempt(Stage.FORWARD, lambda call=call: _call(model, call, shared, mode))
        if not done:
            return
        done, tree = attempt(Stage.EXPORT, lambda values=values: _Export(outputs).tree(values))
        if not done:
            return
        _flush()
        send(stream, FrameKind.RESULT, encode_tree(tree))


def _construct(model_class: Any, order: dict[str, Any], shared: _Shared, mode: str) -> tuple[Any, dict[str, Any]]:
    import torch

    device = "cuda" if mode == "gpu" else "cpu"
    dtype = getattr(torch, order["dtype"])
    arguments = shared.values(order["arguments"], "cpu")
    keywords = shared.values(order["keywords"], "cpu")
    torch.manual_seed(order["init_seed"])
    with torch.no_grad():
        model = model_class(*arguments, **keywords)
        if isinstance(model, torch.nn.Module):
            model = model.to(device=device)
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(dtype)
    state = shared.values(order["state"], device)
    own = dict(model.state_dict()) if isinstance(model, torch.nn.Module) else {}
    matched = [name for name in state if name in own and own[name].shape == state[name].shape]
    with torch.no_grad():
        for name in matched:
            own[name].copy_(state[name])
    return model, {
        "matched": len(matched),
        "expected": len(state),
        "unmatched": sorted(set(state) - set(matched))[:8],
        "own": len(own),
    }


def _call(model: Any, call: dict[str, Any], shared: _Shared, mode: str) -> Any:
    import torch

    shared.refresh()
    arguments = shared.values(call["arguments"], "cuda" if mode == "gpu" else "cpu")
    with torch.no_grad():
        result = model(*arguments)
        if mode == "gpu":
            torch.cuda.synchronize()
    return result


class _Shared:
    """The judge's file of inputs, read-only here."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.view: mmap.mmap | None = None
        self.refresh()

    def refresh(self) -> None:
        size = os.fstat(self.descriptor).st_size
        self.view = mmap.mmap(self.descriptor, size, prot=mmap.PROT_READ) if size else None

    def text(self, offset: int, count: int) -> str:
        return os.pread(self.descriptor, count, offset).decode("utf-8", "surrogatepass")

    def values(self, tree: Any, device: str) -> Any:
        """Private copies of the values that a tree describes."""
        import torch

        if isinstance(tree, TensorLeaf):
            dtype = getattr(torch, tree.dtype)
            if 0 in tree.shape or self.view is None:
                return torch.empty(tree.shape, dtype=dtype, device=device)
            count = 1
            for size in tree.shape:
                count *= size
            flat = torch.empty(count, dtype=dtype)
            width = count * flat.element_size()
            flat.view(torch.uint8).copy_(
                torch.frombuffer(bytearray(self.view[tree.offset : tree.offset + width]), dtype=torch.uint8)
            )
            return flat.view(tree.shape).to(device)
        if isinstance(tree, list | tuple):
            return type(tree)(self.values(item, device) for item in tree)
        if isinstance(tree, dict):
            return {key: self.values(item, device) for key, item in tree.items()}
        return tree


class _Export:
    """Writes the tensors of a result into the judge's file of outputs and describes the rest."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.room = os.fstat(descriptor).st_size
        self.end = 0

    def tree(self, value: Any) -> Any:
        import torch

        # Exact types only: a subclass could defer its work or lie about its shape.
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self.tensor(value)
        if type(value) in (list, tuple):
            return type(value)(self.tree(item) for item in value)
        if type(value) is dict:
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return tuple(self.tree(item) for item in value)
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise TypeError(f"forward returned a value of type {type(value).__name__}, not a tensor")

    def tensor(self, value: Any) -> TensorLeaf:
        import torch

        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TypeError(f"forward returned a tensor of dtype {dtype}")
        plain = value.detach()
        shape = tuple(plain.shape)
        if plain.layout is not torch.strided:
            raise TypeError("forward returned a tensor that is not strided")
        count = plain.numel() * plain.element_size()
        offset = -1
        if self.end + count <= self.room:
            offset = self.end
            if count:
                data = plain.to("cpu").contiguous().reshape(-1).view(torch.uint8)
                with mmap.mmap(self.descriptor, self.room) as view:
                    view[offset : offset + count] = data.numpy().tobytes()
            self.end += -(-count // _ALIGNMENT) * _ALIGNMENT
        return TensorLeaf(dtype, shape, value.device.type, offset)


def _flush() -> None:
    # What the candidate printed must be in the log before the judge ends this process.
    with contextlib.suppress(BaseException):
        sys.stdout.flush()


def _describe(error: BaseException, backend: Any, path: str) -> tuple[str, str, str]:
    """Kind, class name and text of an exception; survives classes that misbehave when they are described."""
    kind = "error"
    with contextlib.suppress(BaseException):
        kind = str(backend.classify(error))
    name = str(type.__getattribute__(type(error), "__name__"))[:200]
    frames = ""
    with contextlib.suppress(BaseException):
        linecache.checkcache()
        shown = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        frames = "".join(f"  line {frame.lineno}, in {frame.name}: {frame.line}\n" for frame in shown[-8:])
    text = ""
    with contextlib.suppress(BaseException):
        text = str(error)
        if isinstance(error, SyntaxError) and error.lineno:
            text = f"{error.msg} (line {error.lineno})"
    if type(text) is not str:
        text = ""
    if isinstance(error, MemoryError) or any(sign in text for sign in _MEMORY_SIGNS):
        kind = "memory"
    cause = error.__cause__
    with contextlib.suppress(BaseException):
        if cause is not None and str(cause) not in text:
            text = f"{text}\ncaused by {type(cause).__name__}: {cause}"
    whole = f"{frames}{name}: {text}"
    if len(whole) > _MAX_ERROR_CHARACTERS:
        half = _MAX_ERROR_CHARACTERS // 2
        whole = f"{whole[:half]}\n… {len(whole) - 2 * half} characters left out …\n{whole[-half:]}"
    return kind, name, whole
