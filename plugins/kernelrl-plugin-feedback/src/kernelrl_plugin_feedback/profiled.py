"""Feedback by category, and for a correct kernel the facts that limit its speed."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.api.feedback import (
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    Feedback,
    Roofline,
    Turn,
)
from kernelrl_plugin_feedback.config import ProfileConfig, StructuredConfig
from kernelrl_plugin_feedback.structured import Structured
from kernelrl_plugin_feedback.wording import number

__all__ = ["Profiled"]

_NEAR_THE_FLOOR = 1.3
"""Ratio of time to the roofline minimum below which the feedback gives no advice."""
_MANY_REGISTERS = 128
"""With 128 registers per thread an SM holds 512 threads, a quarter of the maximum of most GPUs."""
_MUCH_SHARED_BYTES = 32 * 1024
_SHOWN_KERNELS = 3
_SMALL_SHARE = 0.1
"""Of the device time: below it, kernels of others are not mentioned."""


class Profiled(Feedback):
    """`structured`, with performance facts for a correct kernel."""

    def __init__(self, config: ProfileConfig = ProfileConfig()) -> None:  # noqa: B008
        self._limit = config.max_characters
        self._structured = Structured(StructuredConfig(max_characters=config.max_characters))

    def format(self, turn: Turn) -> str:
        text = self._structured.format(turn)
        if not turn.correct or turn.evaluation is None:
            return text
        for sentence in _sentences(turn.evaluation):
            if len(text) + 1 + len(sentence) > self._limit:
                break
            text += "\n" + sentence
        return text


def _sentences(evaluation: Evaluation) -> list[str]:
    """Sentences on performance, the most important first; facts that were not determined are skipped."""
    facts = evaluation.facts
    return [
        *(_roofline(facts.roofline) if facts.roofline is not None else ()),
        *_launches(facts.device_kernels),
        *_device_time(facts, evaluation.own_kernel_share),
        *_resources(evaluation.kernels),
        *_parameters(facts.parameters),
    ]


def _roofline(roofline: Roofline) -> list[str]:
    by_compute = roofline.flop_share > roofline.bandwidth_share
    share = roofline.flop_share if by_compute else roofline.bandwidth_share
    if share <= 0:
        return []
    if by_compute:
        rates = _rates(roofline.achieved_tflops, roofline.tflops, "TFLOP/s")
        text = f"It does the necessary arithmetic at {_percent(share)} of the device's measured peak{rates}"
    else:
        rates = _rates(roofline.achieved_bandwidth_gb_s, roofline.bandwidth_gb_s, "GB/s")
        text = f"It moves the necessary bytes at {_percent(share)} of the device's bandwidth{rates}"
    # The larger share is that of the limit which decides the minimum time.
    times = 1 / share
    if times > 1:
        text += f"; the time is {number(times)} times the least possible ({number(roofline.floor_us)} us)"
    if times <= _NEAR_THE_FLOOR:
        advice = "Little is left to gain."
    elif by_compute:
        advice = "Arithmetic bounds this task: raise reuse of loaded data and use the matrix units."
    else:
        advice = (
            "Memory bounds this task: read each input once, write each output once, "
            "keep intermediate values in registers, and let neighbouring threads access neighbouring addresses."
        )
    return [f"{text}. {advice}"]


def _rates(achieved: float, ceiling: float, unit: str) -> str:
    return f" ({_amount(achieved)} of {_amount(ceiling)} {unit})"


def _launches(launched: Sequence[DeviceKernel]) -> list[str]:
    calls = sum(kernel.calls for kernel in launched)
    if calls < 2:
        return []
    most = sorted(launched, key=lambda kernel: (-kernel.calls, _clean_name(kernel.name)))[:_SHOWN_KERNELS]
    named = ", ".join(f"`{_clean_name(kernel.name)}` {kernel.calls}" for kernel in most)
    return [f"One call launches {calls} kernels, copies and fills ({named}): fuse them where you can."]


def _device_time(facts: EvaluationFacts, own_share: float | None) -> list[str]:
    if own_share is None or own_share > 1 - _SMALL_SHARE:
        return []
    library = [f"`{_clean_name(name)}`" for name in facts.library_kernels[:_SHOWN_KERNELS]]
    where = f", in {', '.join(library)} and copies" if library else ", in copies and fills"
    return [
        f"{_percent(1 - own_share)} of the device time is spent outside your own kernels{where}. Only your own code "
        "can make that part faster, by replacing it or by making it unnecessary."
    ]


def _resources(kernels: Sequence[CompiledKernel]) -> list[str]:
    first = sorted(kernels, key=lambda kernel: (-_spilled(kernel), -kernel.registers, kernel.name))
    return [_resource_line(kernel) for kernel in first[:_SHOWN_KERNELS]]


def _resource_line(kernel: CompiledKernel) -> str:
    facts = [f"uses {kernel.registers} registers per thread"]
    if _spilled(kernel):
        facts.append(f"spills {_spilled(kernel)} bytes")
    elif kernel.stack_bytes:
        facts.append(f"keeps {kernel.stack_bytes} bytes per thread in local memory")
    if kernel.shared_bytes:
        facts.append(f"takes {kernel.shared_bytes} bytes of static shared memory per block")
    if _spilled(kernel):
        advice = ": hold fewer values per thread, with smaller tiles or less unrolling, so that nothing spills"
    elif kernel.stack_bytes:
        advice = ": index local arrays by constants, so that they stay in registers"
    elif kernel.registers >= _MANY_REGISTERS:
        advice = ", which limits the number of resident threads"
    elif kernel.shared_bytes >= _MUCH_SHARED_BYTES:
        advice = ", which limits the number of resident blocks"
    else:
        advice = ""
    words = facts[0] if len(facts) == 1 else f"{', '.join(facts[:-1])} and {facts[-1]}"
    return f"The kernel `{_clean_name(kernel.name)}` {words}{advice}."


def _spilled(kernel: CompiledKernel) -> int:
    return max(kernel.spill_stores_bytes, kernel.spill_loads_bytes)


def _parameters(note: str) -> list[str]:
    """A sentence for a partial match only."""
    return [f"Parameters: {note[:160]}."] if "others" in note else []


def _clean_name(name: str) -> str:
    """A name in printable characters, shortened. The candidate's process reports the names of kernels."""
    text = "".join(letter for letter in name if letter.isprintable() and letter != "`")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else number(value)
