"""The runner: one candidate, in a fork of the zygote, killed after it.

It is given the candidate's source, constructor arguments, the reference's state, and the inputs of its calls. It knows
neither the reference nor a seed of the inputs nor an expected output. Candidate code shares this process, so nothing
that leaves it is believed: see `kernelrl_judge.protocol`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kernelrl_judge import host_memory, process_settings, sandbox
from kernelrl_judge.protocol import (
    MAX_BODY_BYTES,
    Failure,
    Frame,
    FrameKind,
    Stage,
    decode_tree,
    encode_failure,
    encode_tree,
    receive,
    send,
)
from kernelrl_judge.runner_effects import Effects, watched
from kernelrl_judge.runner_errors import described
from kernelrl_judge.runner_later import at_once, later_call
from kernelrl_judge.runner_memory import (
    Inputs,
    Originals,
    Outputs,
    fill_fresh_memory,
    leaves,
    poison_device,
    refilled,
    take_at_once,
    tensors,
)
from kernelrl_judge.runner_state import State
from kernelrl_judge.samples import sampled
from kernelrl_judge.speaking import speaking

_SPIN_S = 0.2
_FRESH_BYTE = 0xFE
"""What the processor's memory holds when it is allocated outside of timed calls: a large negative number, or none."""
_PASSING_ON = (
    *(FrameKind.CONSTRUCT, FrameKind.CALL, FrameKind.IMPOSE),
    *(FrameKind.STAGE, FrameKind.RETURN, FrameKind.LATER),
)
_STAGES = {
    FrameKind.LOAD: Stage.LOAD,
    FrameKind.ATTACH: Stage.CONSTRUCT,
    FrameKind.CONSTRUCT: Stage.CONSTRUCT,
}


def main(
    descriptors: Sequence[int],
    request: bytes,
    backend: Any,
    mode: str,
    environment: dict[str, str],
    scratch: str,
    look: Callable[[], bool],
) -> NoReturn:
    """Serve one candidate and end. Never returns, whatever the candidate does.

    Args:
        look: from `own_code.own_code`.
    """
    code = 0
    try:
        stream, inputs, outputs, log, status = descriptors
        settings = json.loads(request)
        missing = sandbox.enter(
            memory_mib=settings["memory_mib"],
            on_gpu=mode == "gpu",
            cpu_s=settings["cpu_s"],
            scratch=scratch,
            keep={stream, inputs, outputs, log},
            status=status,
            # Work of one that has ended is nobody's. Compilers for a GPU are processes.
            processes=mode != "cpu",
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
        if mode == "gpu":
            _make_context()
        _Candidate(connection, Inputs(inputs), Outputs(outputs), backend, mode, scratch, look).start(missing)
    except BaseException:
        # The judge sees the closed stream; what happened here is for the log only.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        code = 70
    finally:
        _flush()
        os._exit(code)


def _make_context() -> None:
    """Have the device's context made while others may be timed: it takes long and is no work of a kernel."""
    import torch

    # Where it cannot be made now, the candidate meets the error in the place that has a name for it.
    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        # It asks a library that finds nothing where a runner lives, and then remembers the driver's answer.
        warnings.simplefilter("ignore")
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.device_count()


class _Failed(BaseException):
    """The candidate failed, and the judge has been told."""


class _Candidate:
    """The candidate between the judge's orders."""

    def __init__(
        self,
        stream: socket.socket,
        inputs: Inputs,
        outputs: Outputs,
        backend: Any,
        mode: str,
        scratch: str,
        look: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._inputs = inputs
        self._outputs = outputs
        self._backend = backend
        self._mode = mode
        self._device = "cuda" if mode == "gpu" else "cpu"
        self._path = os.path.join(scratch, "candidate.py")
        self._options: dict[str, Any] = {}
        self._module_class: Any = None
        self._model: Any = None
        self._arguments: Any = None
        self._staged: list[Any] = []
        self._past: list[Any] = []
        self._collects = False
        self._staging = b""
        self._staging_order: Any = None
        self._places: list[list[Any]] = []
        self._all_places: list[Any] = []
        self._events: Any = None
        self._spin_until = 0.0
        self._order: FrameKind | None = None
        self._originals = Originals()
        self._look = look
        self._say: Any = None
        self._state = State()
        self._effects = Effects(self._state)
        self._read_settings = process_settings.reading()
        self._settings: Any = None
        self._changed: list[str] = []

    def start(self, missing: list[str]) -> None:
        """Serve, having told the judge which layers of the sandbox are missing."""
        self._open(missing)
        self.serve()

    def _open(self, missing: list[str]) -> None:
        # Afterwards this process has the key in no variable any more.
        key, self._say = speaking(self._stream, self._look)
        send(self._stream, FrameKind.STARTED, key + encode_tree(missing))

    def serve(self) -> None:
        orders: dict[FrameKind, Callable[[Frame], None]] = {
            FrameKind.PING: self._ping,
            FrameKind.LOAD: self._load,
            FrameKind.ATTACH: self._attach,
            FrameKind.CONSTRUCT: self._construct,
            FrameKind.CALL: self._call,
            FrameKind.IMPOSE: self._impose,
            FrameKind.STAGE: self._stage,
            FrameKind.WINDOW: self._window,
            FrameKind.PROFILE: self._profile,
            FrameKind.TIME: self._time,
            FrameKind.WAKE: self._wake,
            FrameKind.RETURN: self._return,
            FrameKind.LATER: self._later,
        }
        look = self._look
        while True:
            self._spin()
            frame = receive(self._stream, descriptors=2)
            if frame is None or frame.kind not in orders:
                return
            self._order = frame.kind
            if frame.kind in _PASSING_ON:
                # What passes values on is not the candidate's to replace or to watch.
                sys.settrace(None)
                sys.setprofile(None)
                self._originals.restore()
                look()
            order = orders[frame.kind]
            try:
                # What fails outside of the candidate's code fails for what the candidate did, or for want of memory.
                self._attempt(_STAGES.get(frame.kind, Stage.FORWARD), lambda order=order, frame=frame: order(frame))
            except _Failed:
                return

    def _spin(self) -> None:
        """Wait busily for an order that is timed: being woken up would count as the candidate's time."""
        # On the processor the candidate's own threads need the time.
        until = self._spin_until if self._mode == "gpu" else 0.0
        while time.monotonic() < until and not select.select([self._stream], [], [], 0)[0]:
            pass

    def _answer(self, kind: FrameKind, *body: Any, looks: bool = True) -> None:
        _flush()
        self._tell(kind, b"".join(map(encode_tree, body)), looks=looks)

    def _tell(self, kind: FrameKind, body: bytes = b"", *, looks: bool = True) -> None:
        """Send a frame.

        Args:
            looks: whether to look first for what was replaced; not where that would count as the candidate's time.
        """
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"a message of more than {MAX_BODY_BYTES} bytes")
        self._say((kind, body, looks))

    def _attempt(self, stage: Stage, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except _Failed:
            raise
        except BaseException as error:
            kind, name, text = described(error, self._backend, self._path)
            _flush()
            self._tell(FrameKind.FAILED, encode_failure(Failure(stage, kind, name, text)))
            raise _Failed from None

    # --- orders -----------------------------------------------------------------------------------------------------

    def _ping(self, frame: Frame) -> None:
        self._spin_until = time.monotonic() + _SPIN_S
        self._tell(FrameKind.DONE, looks=False)

    def _load(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        self._inputs.refresh()
        source = self._inputs.text(order["source_offset"], order["source_bytes"])
        with open(self._path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(source)
        self._options = json.loads(order["options"])
        if order["builds"]:
            from kernelrl_judge import runner_builds

            on_cpu = self._mode == "cpu"
            runner_builds.install(self._stream, idle=order["disabled"] and on_cpu, tells=on_cpu)
        if self._mode == "cpu":
            fill_fresh_memory(_FRESH_BYTE)
        if order["disabled"]:
            if self._mode == "gpu":
                from kernelrl_judge.disabling import poison_memory

                poison_memory()
            self._backend.disable_kernels()
        self._settings = self._read_settings()
        self._module_class = self._attempt(Stage.LOAD, lambda: self._backend.load(self._path, self._options))
        self._changed = process_settings.changed(self._settings, self._read_settings())
        if self._mode == "gpu" and "triton" in sys.modules:
            from kernelrl_judge import runner_turns

            runner_turns.install(self._stream, lambda: self._order in (FrameKind.CONSTRUCT, FrameKind.CALL))
        check = getattr(self._backend, "compile_check", None)
        if self._mode == "compile" and check is not None:
            module = sys.modules.get("candidate")
            note = self._attempt(Stage.LOAD, lambda: str(check(module, self._options)))
            self._answer(FrameKind.LOADED, note)
        else:
            self._answer(FrameKind.LOADED)

    def _attach(self, frame: Frame) -> None:
        from kernelrl_judge.device_memory import Arena

        sizes = decode_tree(frame.body)
        self._staging = b""
        for memory, size, descriptor in zip(
            (self._inputs, self._outputs), (sizes["inputs"], sizes["outputs"]), frame.descriptors, strict=True
        ):
            if memory.arena is not None:
                memory.arena.close()
            # A kernel may work in place on its inputs. The judge reads its own of them.
            memory.arena = Arena.attach(descriptor, size, 0)
            os.close(descriptor)

    def _construct(self, frame: Frame) -> None:
        import torch

        order = decode_tree(frame.body)
        self._inputs.refresh()
        dtype = getattr(torch, order["dtype"])

        def make() -> tuple[Any, dict[str, Any]]:
            arguments = self._inputs.values(order["arguments"], "cpu")
            keywords = self._inputs.values(order["keywords"], "cpu")
            torch.manual_seed(order["init_seed"])
            with torch.no_grad():
                model = self._module_class(*arguments, **keywords)
                if isinstance(model, torch.nn.Module):
                    model = model.to(device=self._device)
                    for tensor in (*model.parameters(), *model.buffers()):
                        if tensor.is_floating_point():
                            tensor.data = tensor.data.to(dtype)
            state = self._inputs.values(order["state"], self._device)
            return model, self._state.give(model, state)

        self._model, note = self._attempt(Stage.CONSTRUCT, make)
        self._answer(FrameKind.READY, note)

    def _call(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        if order["operators"]:
            from kernelrl_judge.listing import Listing
            from kernelrl_judge.operators import called
            from kernelrl_judge.provenance import Watch

            watch = Watch()
            # As any listing it may leave out sums of memory.
            begin = watch.begin if order["sums"] else functools.partial(Listing.begin, watch)
            # What computes before the call or after it counts as well.
            tree, facts = called(lambda: self._called(order, begin), watch)
            self._answer(FrameKind.RESULT, tree)
            self._answer(FrameKind.FACTS, facts)
        else:
            self._answer(FrameKind.RESULT, self._called(order))

    def _called(self, order: Any, begin: Callable[[], None] | None = None) -> Any:
        self._inputs.refresh()
        arguments = self._inputs.values(order["arguments"], self._device)
        if order["again"]:
            # New bytes where those of the call before lay.
            arguments = refilled(self._arguments, arguments)
        self._effects.hold(arguments if order["hold"] else None, elsewhere=not order["again"])
        if order["poison"] >= 0:
            self._poison(order["poison"], order["poisoned"])
        self._outputs.may_overlap = order["overlap"]
        state = self._inputs.values(order["state"], self._device)
        if state:
            self._state.impose(state)
        given = [*tensors(arguments)]
        # On a GPU what is kept might take the memory that the call needs.
        before = self._state.kept() if order["effects"] and self._mode != "gpu" else []
        if begin is not None:
            begin()
        with self._in_order(other=order["reordered"]):
            values = self._attempt(Stage.FORWARD, lambda: self._forward(arguments))
        beside = None
        if order["effects"]:
            held = self._attempt(Stage.EXPORT, lambda: self._state.held(order["held"], self._device))
            shares = self._shares(values, given)
            kept = order["keep_outputs"]
            overwrites = self._attempt(Stage.EXPORT, lambda: self._effects.overwrites(values, given, kept, before))
            bytes_held = self._attempt(Stage.EXPORT, lambda: self._effects.held_bytes(values, given))
            beside = [arguments if order["back"] else None, held, shares, overwrites, bytes_held]
        tree = self._attempt(Stage.EXPORT, lambda: self._exported(values, beside))
        # Kept until the next inputs are made, which then lie elsewhere.
        self._arguments = arguments if order["keep"] else None
        return tree

    def _later(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        self._inputs.refresh()
        # Over the judge's own file, of which this process cannot write to its view.
        arguments = self._inputs.values(order["arguments"], "shared" if order["read_only"] else self._device)
        state = self._inputs.values(order["state"], self._device)
        if state:
            self._state.impose(state)
        self._outputs.may_overlap = True
        if order["training"] is not None:
            self._attempt(Stage.FORWARD, lambda: self._model.train(order["training"]))
        gradients = not any(tensor.requires_grad for tensor in self._state.given())
        several = [functools.partial(self._model, *each) for each in arguments] if order["at_once"] else []
        found = later_call(
            lambda: at_once(several, order["at_once"]) if several else self._model(*arguments),
            self._read_settings,
            self._settings,
            threads=order["threads"],
            gradients=gradients,
        )
        if order["training"] is not None:
            self._attempt(Stage.FORWARD, lambda: self._model.train(not order["training"]))
        if found.error is not None and not order["refused"]:
            self._attempt(Stage.FORWARD, lambda: _raise(found.error))
        self._look()
        raised = "" if found.error is None else type(found.error).__name__
        tree = self._attempt(Stage.EXPORT, lambda: self._exported(found.value))
        self._answer(FrameKind.RESULT, [tree, [*dict.fromkeys([*self._changed, *found.changed])], raised])

    def _in_order(self, *, other: bool) -> contextlib.AbstractContextManager[None]:
        """In what order threads and programs do the work of a call."""
        if not other:
            return contextlib.nullcontext()
        from kernelrl_judge.reordering import reordered

        return reordered(threads=self._mode == "cpu")

    def _shares(self, values: Any, given: list[Any]) -> list[list[int]]:
        return self._attempt(Stage.EXPORT, lambda: self._effects.shares(values, given))

    def _impose(self, frame: Frame) -> None:
        self._inputs.refresh()
        state = self._inputs.values(decode_tree(frame.body), self._device)
        self._state.impose(state)
        self._wait()
        # It has been looked for when the order came, and no call was made since.
        self._answer(FrameKind.STAGED, looks=False)

    def _stage(self, frame: Frame) -> None:
        from kernelrl_judge.windows import made_events

        self._inputs.refresh()
        self._effects.forget()
        self._look_at_memory()
        again = frame.body == self._staging
        if not again:
            self._staging = frame.body
            self._staging_order = decode_tree(frame.body)
            self._places = self._outputs.places(self._staging_order["outputs"])
            self._all_places = [place for places in self._places for place in places]
        order = self._staging_order
        if not (again and order["announced"] and self._inputs.announced_again(order["inputs"], self._staged)):
            self._past = self._staged if order["announced"] else []
            self._staged = []
            if self._device == "cuda":
                take_at_once([*leaves(order["outputs"])])
            if order["announced"]:
                self._staged = self._inputs.announced(order["inputs"])
            else:
                self._staged = [self._inputs.values(arguments, self._device) for arguments in order["inputs"]]
        self._events = made_events(self._device)
        if self._device == "cpu":
            fill_fresh_memory(None)
            host_memory.ready(order["ready"] * len(order["inputs"]))
            for place in self._all_places:
                # The pages are touched now and not on the clock.
                place.zero_()
        self._wait()
        # It has been looked for when the order came, and no call was made since.
        self._answer(FrameKind.STAGED, looks=False)
        self._spin_until = time.monotonic() + _SPIN_S

    def _wake(self, frame: Frame) -> None:
        import torch

        if self._mode == "gpu":
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
        self._tell(FrameKind.DONE, looks=False)
        self._spin_until = time.monotonic() + _SPIN_S

    def _window(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        staged = self._staged[: order["count"]]
        if order["watch"] is not None:
            seen = watched(order["watch"], staged, self._shares, lambda look: self._ordered(staged, look))
            self._answer(FrameKind.FACTS, seen)
            return
        self._timed(staged)

    def _ordered(self, staged: list[Any], look: Callable[[int, Any], None]) -> None:
        """Wait for the order of a watched window, and make it."""
        # What a listing begins with may still be under way on a device.
        self._wait()
        self._tell(FrameKind.STAGED, looks=False)
        self._spin_until = time.monotonic() + _SPIN_S
        self._spin()
        frame = receive(self._stream)
        if frame is None or frame.kind is not FrameKind.WINDOW:
            raise _Failed
        self._timed(staged, look)

    def _timed(self, staged: list[Any], look: Callable[[int, Any], None] | None = None) -> None:
        started = time.perf_counter()
        # To let go of inputs, or to collect garbage, may run code of the candidate's: on the clock, and not between
        # windows.
        self._past = []
        if self._collects:
            gc.enable()
        result = self._calls(staged, look)
        self._collects = gc.isenabled()
        gc.disable()
        self._tell(FrameKind.DONE, looks=False)
        telemetry = {
            "calls_s": result.calls_s,
            "events_s": result.events_s(),
            "whole_s": time.perf_counter() - started,
            "held_bytes": host_memory.held_bytes(),
        }
        self._tell(FrameKind.FACTS, encode_tree(telemetry), looks=False)
        # Not on the clock where outputs are still there, and not among the operators that are listed.
        if self._device == "cuda" and look is None:
            self._outputs.note(result.outputs)

    def _calls(self, staged: list[Any], look: Callable[[int, Any], None] | None = None) -> Any:
        """Make a window of calls and export every output.

        Args:
            look: called with the number of each call and its output.
        """
        from kernelrl_judge.windows import window

        if self._device == "cpu":
            # What a call replaces is not used for the next.
            attempt, fill, note, places_of = self._attempt, self._outputs.fill, self._outputs.note, self._places

            def filled(index: int, value: Any) -> None:
                fill(places_of[index], [value])

            def kept_and_noted(index: int, value: Any) -> None:
                filled(index, value)
                note([value])

            def keep(index: int, value: Any) -> None:
                attempt(Stage.EXPORT, lambda: kept_and_noted(index, value))

            def looked_at(index: int, value: Any) -> None:
                look(index, value)
                attempt(Stage.EXPORT, lambda: filled(index, value))

            kept = keep if look is None else looked_at
            return self._attempt(Stage.FORWARD, lambda: window(self._model, staged, self._device, kept))
        # What takes a while is not done on the clock.
        events, self._events = self._events, None
        places = self._all_places
        if len(staged) < len(self._places):
            places = [place for places in self._places[: len(staged)] for place in places]
        result = self._attempt(Stage.FORWARD, lambda: window(self._model, staged, self._device, events=events))
        if look is not None:
            for index, value in enumerate(result.outputs):
                look(index, value)
        self._attempt(Stage.EXPORT, lambda: self._filled(places, result.outputs))
        return result

    def _return(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        if "kept" in order:
            found = self._effects.kept(order["kept"])
        else:
            found = {
                "inputs": sampled([self._staged[index] for index in order["calls"]], order.get("sampled", -1)),
                "state": self._state.held(order.get("held", {}), self._device),
                "shares": self._look_at_memory(on_host=self._device == "cpu"),
                "overwrites": sorted(self._outputs.returned.overwrites),
            }
        self._answer(FrameKind.RESULT, self._attempt(Stage.EXPORT, lambda: self._exported(None, [found]))[1])

    def _look_at_memory(self, *, on_host: bool = False) -> list[list[int]]:
        """What outputs of the window share with inputs and state."""
        width = len(self._places[0]) if self._places else 0
        given = [[*tensors(arguments)] for arguments in self._staged]
        return self._outputs.returned.look(max(1, width), given, self._state.given(), on_host=on_host)

    def _filled(self, places: list[Any], values: list[Any]) -> None:
        self._outputs.fill(places, values)
        self._wait()

    def _profile(self, frame: Frame) -> None:
        order = decode_tree(frame.body)
        from kernelrl_judge.profiling import device_kernels

        if order["arguments"] is None:
            device_kernels(lambda: None)
            self._answer(FrameKind.FACTS, [])
            return
        self._inputs.refresh()
        arguments = self._inputs.values(order["arguments"], self._device)
        facts = self._attempt(Stage.FORWARD, lambda: device_kernels(lambda: self._forward(arguments)))
        self._answer(FrameKind.FACTS, facts)

    def _time(self, frame: Frame) -> None:
        from kernelrl_judge.kernelbench_timing import measure

        order = decode_tree(frame.body)
        self._inputs.refresh()
        arguments = self._inputs.values(order["arguments"], self._device)
        fill_fresh_memory(None)
        times_ms = self._attempt(
            Stage.FORWARD,
            lambda: measure(lambda: self._model(*arguments), order["method"], order["trials"], self._device),
        )
        self._answer(FrameKind.FACTS, times_ms)

    # --- steps ------------------------------------------------------------------------------------------------------

    def _forward(self, arguments: Sequence[Any]) -> Any:
        import torch

        look = self._look
        with torch.no_grad():
            result = self._model(*arguments)
            # Before anything that it may have replaced for a while is used.
            look()
            self._wait()
        return result

    def _exported(self, values: Any, beside: list[Any] | None = None) -> Any:
        tree = self._outputs.export(values, beside)
        self._wait()
        return tree

    def _poison(self, byte: int, sizes: Sequence[int]) -> None:
        """What a candidate allocates and does not write is no answer."""
        if self._device == "cuda":
            poison_device(byte, sizes)
        elif self._mode == "cpu":
            fill_fresh_memory(byte)

    def _wait(self) -> None:
        if self._mode == "gpu":
            import torch

            torch.cuda.synchronize()


def _raise(error: BaseException) -> NoReturn:
    raise error


def _flush() -> None:
    # What the candidate printed must be in the log before the judge ends this process.
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
