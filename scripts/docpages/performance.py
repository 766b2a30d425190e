"""The page of measurements, from `benchmarks/results` and the declarations in `measurements`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docpages.markdown import ROOT, note, table, wrapped
from docpages.measurements import SECTIONS
from docpages.measurements.declaration import Column, Figures, Measurement, Rows

RESULTS = ROOT / "benchmarks/results"
_NO_VERSION = {
    "date",
    "started",
    "load_at_start",
    "mode",
    "device",
    "platform",
    "command",
    "directory",
    "commit",
    "compute_capability",
}


def performance_page() -> str:
    """The page with one section per measurement.

    Raises:
        LookupError: a result has no declaration, or a declaration names a result or a figure that does not exist.
    """
    declared = [name for _, found in SECTIONS for one in found for name in one.results]
    existing = {path.name for path in RESULTS.iterdir()}
    if wrong := sorted(existing ^ set(declared)):
        raise LookupError(f"benchmarks/results and scripts/docpages/measurements differ: {', '.join(wrong)}")
    rows = []
    sections = []
    for title, measurements in SECTIONS:
        sections.append(f"## {title}")
        for one in measurements:
            data = [_read(name) for name in one.results]
            rows.append((f"[{one.title}](#{_anchor(one.title)})", one.measures, _dates(data)))
            sections += _section(one, data)
    parts = [
        "# Performance",
        note("benchmarks/results"),
        wrapped(
            "Measured figures of this repository. Each program of `benchmarks/` writes a result with date, machine and "
            "versions; nothing here is estimated. `load` is the number of processes that were computing when a "
            "measurement began: above the number of cores, other work has slowed it. Times on another machine differ."
        ),
        table(("measurement", "measures", "date"), rows),
        *sections,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _read(name: str) -> Any:
    text = (RESULTS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _section(of: Measurement, data: Sequence[Any]) -> Iterator[str]:
    yield f"### {of.title}"
    files = ", ".join(f"[`{name}`](../../benchmarks/results/{name})" for name in of.results)
    program = f"`benchmarks/{of.program}.py`" if "/" not in of.program and " " not in of.program else f"`{of.program}`"
    yield wrapped(f"{of.measures} {of.more}".strip())
    for part in of.parts:
        yield _rows(part, of, data) if isinstance(part, Rows) else _figures(part, of, data[0])
    yield "\n".join(
        [
            f"- Program: {program}. Result: {files}.",
            *(f"- {line}" for line in dict.fromkeys(map(_provenance, data))),
            *(f"- Note: {one['note']}" for one in data if isinstance(one, dict) and one.get("note")),
        ]
    )


def _figures(part: Figures, of: Measurement, data: Any) -> str:
    rows = [(one.title, _text(_at(data, one, of), one.unit)) for one in part.figures]
    return table(("figure", "value"), rows)


def _rows(part: Rows, of: Measurement, data: Sequence[Any]) -> str:
    source = part.source(data)
    items = source.items() if isinstance(source, Mapping) else ((None, item) for item in source)
    rows = [
        [_text(name if one.path == "@" else _at(item, one, of), one.unit) for one in part.columns]
        for name, item in items
    ]
    return table([one.title for one in part.columns], rows)


def _at(data: Any, of: Column, measurement: Measurement) -> Any:
    if not isinstance(of.path, str):
        return of.path(data)
    for key in of.path.split("|"):
        try:
            data = data[int(key)] if isinstance(data, list | tuple) else data[key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise LookupError(f"{measurement.title}: no {of.path!r} in {', '.join(measurement.results)}") from None
    return data


def _text(value: Any, unit: str) -> str:
    """A value with its unit, numbers with three digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " to ".join(_text(one, "") for one in value) + (f" {unit}" if unit else "")
    if not isinstance(value, int | float):
        return str(value)
    if unit == "%":
        return f"{_number(value * 100)} %"
    return f"{_number(value)} {unit}".strip() if unit != "x" else f"{_number(value)}×"


def _number(value: float) -> str:
    if value == 0 or isinstance(value, int):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.5f}".rstrip("0")


def _facts(data: Any) -> dict[str, Any]:
    """Date, machine and versions of a result, wherever it has them."""
    first = data[0] if isinstance(data, list) else data
    inner = first.get("ours", {}) if isinstance(first, dict) else {}
    found = {**inner.get("provenance", {}), **first, **first.get("provenance", {})}
    found |= {key: value for key, value in (found.get("hardware") or {}).items() if key not in found}
    return found


def _date(data: Any) -> str:
    facts = _facts(data)
    return str(facts.get("date") or facts["started"])[:10]


def _dates(data: Sequence[Any]) -> str:
    found = sorted({_date(one) for one in data})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _provenance(data: Any) -> str:
    facts = _facts(data)
    device = facts.get("device")
    gpu = facts.get("gpu") or (device if isinstance(device, str) and "NVIDIA" in device else "")
    cores = f"{facts['cores']} cores" if facts.get("cores") else ""
    load = f"load {facts['load_at_start']:.1f}" if "load_at_start" in facts else ""
    machine = ", ".join(part for part in (gpu, facts.get("cpu") or "", cores, load) if part)
    versions = [
        f"{name} {value}"
        for name, value in facts.items()
        if name not in _NO_VERSION and isinstance(value, str) and re.fullmatch(r"\d+(\.\w+)+([+-][\w.]+)?", value)
    ]
    revision = str((facts.get("git") or {}).get("revision") or facts.get("commit") or "")[:8]
    at = f"; revision {revision}" if revision else ""
    return f"Measured {_date(data)}{f' on {machine}' if machine else ''}; {', '.join(versions)}{at}."
