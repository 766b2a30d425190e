"""Feedback by category, and for a correct kernel the facts of its profile that limit its speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.feedback import CompiledKernel, Evaluation, Feedback, Turn
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
        for sentence in _facts(turn.evaluation):
            if len(text) + 1 + len(sentence) > self._limit:
                break
            text += "\n" + sentence
        return text


def _facts(evaluation: Evaluation) -> list[str]:
    """Sentences on performance, the most important first; facts that the profile lacks are skipped."""
    profile = evaluation.profile
    runtime_us = evaluation.runtime.median_us if evaluation.runtime is not None else None
    roofline = profile.get("roofline")
    launched = _mappings(profile.get("device_kernels"))
    return [
        *_roofline(roofline if isinstance(roofline, Mapping) else {}, runtime_us),
        *_launches(launched),
        *_device_time(profile, evaluation.own_kernel_share),
        *_resources(evaluation.kernels),
        *_parameters(profile.get("parameters")),
    ]


def _roofline(roofline: Mapping[str, Any], runtime_us: float | None) -> list[str]:
    bandwidth, compute = _get(roofline, "bandwidth_share"), _get(roofline, "flop_share")
    floor_us = _get(roofline, "floor_us")
    by_compute = (compute or 0.0) > (bandwidth or 0.0)
    share = compute if by_compute else bandwidth
    parts = []
    if share:
        if by_compute:
            rates = _rates(roofline, "achieved_tflops", "tflops", "TFLOP/s")
            parts.append(f"It does the necessary arithmetic at {_percent(share)} of the device's measured peak{rates}")
        else:
            rates = _rates(roofline, "achieved_bandwidth_gb_s", "bandwidth_gb_s", "GB/s")
            parts.append(f"It moves the necessary bytes at {_percent(share)} of the device's bandwidth{rates}")
    times = runtime_us / floor_us if runtime_us and floor_us else 1 / share if share else None
    if times is not None and times > 1:
        least = f" ({number(floor_us)} us)" if floor_us else ""
        parts.append(f"{'the' if parts else 'The'} time is {number(times)} times the least possible{least}")
    if not parts:
        return []
    if times is not None and times <= _NEAR_THE_FLOOR:
        advice = "Little is left to gain."
    elif not share:
        advice = ""
    elif by_compute:
        advice = "Arithmetic bounds this task: raise reuse of loaded data and use the matrix units."
    else:
        advice = (
            "Memory bounds this task: read each input once, write each output once, "
            "keep intermediate values in registers, and let neighbouring threads access neighbouring addresses."
        )
    return [f"{'; '.join(parts)}. {advice}".rstrip()]


def _rates(roofline: Mapping[str, Any], achieved: str, ceiling: str, unit: str) -> str:
    low, high = _get(roofline, achieved), _get(roofline, ceiling)
    return f" ({_amount(low)} of {_amount(high)} {unit})" if low and high else ""


def _launches(launched: Sequence[Mapping[str, Any]]) -> list[str]:
    calls = int(sum(_get(kernel, "calls") or 0 for kernel in launched))
    if calls < 2:
        return []
    most = sorted(launched, key=lambda kernel: (-(_get(kernel, "calls") or 0), _name(kernel)))[:_SHOWN_KERNELS]
    named = ", ".join(f"`{_name(kernel)}` {int(_get(kernel, 'calls') or 0)}" for kernel in most)
    return [f"One call launches {calls} kernels, copies and fills ({named}): fuse them where you can."]


def _device_time(profile: Mapping[str, Any], own: float | None) -> list[str]:
    if own is None or own > 1 - _SMALL_SHARE:
        return []
    names = profile.get("library_kernels")
    library = [f"`{_name({'name': name})}`" for name in names] if isinstance(names, list | tuple) else []
    where = f", in {', '.join(library[:_SHOWN_KERNELS])} and copies" if library else ", in copies and fills"
    return [
        f"{_percent(1 - own)} of the device time is spent outside your own kernels{where}. Only your own code can make "
        "that part faster, by replacing it or by making it unnecessary."
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
    return f"The kernel `{_name({'name': kernel.name})}` {words}{advice}."


def _spilled(kernel: CompiledKernel) -> int:
    return max(kernel.spill_stores_bytes, kernel.spill_loads_bytes)


def _parameters(note: object) -> list[str]:
    """A sentence for a partial match only."""
    if not isinstance(note, str) or "others" not in note:
        return []
    return [f"Parameters: {note[:160]}."]


# Names and numbers partly come from the candidate's process, so every type is checked.


def _mappings(value: object) -> list[Mapping[str, Any]]:
    items = value if isinstance(value, list | tuple) else []
    return [item for item in items if isinstance(item, Mapping)]


def _get(values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e18 else None


def _name(kernel: Mapping[str, Any]) -> str:
    text = "".join(letter for letter in str(kernel.get("name", "?")) if letter.isprintable() and letter != "`")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else number(value)
