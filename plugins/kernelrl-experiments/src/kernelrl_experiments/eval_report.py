"""The output of `kernelrl eval`: lines for a terminal, Markdown, or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.cli.output import table
from kernelrl_core.heldout.intervals import GOOD_TASKS, ROUGH_TASKS

__all__ = ["csv_text", "flat", "kernel_lines", "markdown_lines", "text_lines"]

_NOT_PRINTED = ("rows", "provenance", "recipe")
_TABLES = ("outcomes", "reasons", "intervals", "levels", "turns", "budgets", "pass@1_ci")
"""Keys of a report that are no lines of the table of results."""
_LEVEL_KEYS = ("pass@1", "compile_rate", "fast_1", "geometric_mean_speedup")
_MOST = 8
"""Numbers of episodes or turns in a table; of more, powers of two are shown."""


@attrs.frozen
class _Table:
    title: str
    rows: Sequence[Sequence[str]]
    """The first row is the head."""


def flat(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without samples, recipe and provenance, which are in the file of --output only."""
    return {key: value for key, value in report.items() if key not in _NOT_PRINTED}


def text_lines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tables for a terminal."""
    lines: list[str] = []
    for one in _tables(reports):
        lines += [*([""] if lines else []), *([one.title] if one.title else []), *table(one.rows)]
    return [*lines, "", *_notes(reports)] if _notes(reports) else lines


def kernel_lines(rows: Sequence[Mapping[str, Any]], files: Mapping[str, str]) -> list[str]:
    """A table with one line per kernel of a suite.

    Args:
        rows: of `kernelrl eval --output`.
        files: id of a sample -> file of its kernel.
    """
    cells = []
    for row in rows:
        speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
        cells.append((files[row["sample"]], row["task_id"], row["outcome"], row["verdict"], speedup))
    return table([("kernel", "task", "outcome", "verdict", "speedup"), *cells])


def markdown_lines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same tables in Markdown."""
    lines: list[str] = []
    for one in _tables(reports):
        head, *rows = [["\\|".join(cell.split("|")) for cell in row] for row in one.rows]
        lines += [f"### {one.title or 'Results'}", "", *map(_piped, (head, ["---"] * len(head), *rows)), ""]
    return [*lines, *(f"- {note}" for note in _notes(reports))]


def csv_text(reports: Sequence[Mapping[str, Any]]) -> str:
    """One row per value: policy, part of the result, name, value, and bounds of the interval where there is one."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("policy", "part", "name", "value", "low", "high", "quality"))
    for report in reports:
        parts = {"all": report, **{f"level {level}": found for level, found in report["levels"].items()}}
        for part, found in parts.items():
            for key, value in found.items():
                if key not in (*_TABLES, *_NOT_PRINTED, "policy"):
                    bounds = found["intervals"].get(key, {})
                    cells = (bounds.get(name) for name in ("low", "high", "quality"))
                    writer.writerow((report["policy"], part, key, value, *cells))
            for name, count in found["outcomes"].items():
                writer.writerow((report["policy"], part, f"outcomes/{name}", count, None, None, None))
        for part, name, value in (*_turn_values(report["turns"]), *_budget_values(report["budgets"])):
            writer.writerow((report["policy"], part, name, value, None, None, None))
    return stream.getvalue()


def _turn_values(turns: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for row in turns:
        part = f"turn {row['turn']}"
        for key, value in row.items():
            if isinstance(value, Mapping):
                found += [(part, f"{key}/{name}", inner) for name, inner in value.items()]
            elif key != "turn":
                found.append((part, key, value))
    return found


def _budget_values(budgets: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    return [
        (f"{row['episodes']} episodes of {row['turns']} turns", key, row[key])
        for row in budgets
        for key in ("correct", "speedup")
    ]


def _tables(reports: Sequence[Mapping[str, Any]]) -> list[_Table]:
    several = len(reports) > 1
    tables = [_results(reports)]
    for report in reports:
        of = f" of {report['policy']}" if several else ""
        tables.append(_outcomes(report, of))
        if len(report["levels"]) > 1:
            tables.append(_levels(report, of))
        if len(report["turns"]) > 1:
            tables.append(_turns(report, of))
        if any(row["episodes"] > 1 for row in report["budgets"]):
            tables.append(_budgets(report, of))
    return tables


def _results(reports: Sequence[Mapping[str, Any]]) -> _Table:
    keys = dict.fromkeys(key for report in reports for key in report if key not in (*_TABLES, *_NOT_PRINTED))
    rows = [[key, *(_with_interval(report, key) for report in reports)] for key in keys]
    kept = [row for row, key in zip(rows, keys, strict=True) if any(_is_news(report, key) for report in reports)]
    if len(reports) == 1:
        return _Table("", [["result", "value [95 % interval]"], *kept])
    return _Table("", [["result", *(f"({number})" for number in range(1, len(reports) + 1))], *kept])


def _is_news(report: Mapping[str, Any], key: str) -> bool:
    """Whether a result has a value, which without suspects is not that of another line."""
    counted = report.get(key.removesuffix("_as_measured")) if key.endswith("_as_measured") else None
    return report.get(key) not in (None, counted)


def _outcomes(report: Mapping[str, Any], of: str) -> _Table:
    """Number of turns with each outcome: of the turns that represent episodes, by level, and of all replies by turn."""
    columns = {"episodes": report["outcomes"]}
    if len(report["levels"]) > 1:
        columns |= {f"level {level}": found["outcomes"] for level, found in report["levels"].items()}
    if len(report["turns"]) > 1:
        shown = _shown_numbers(len(report["turns"]))
        columns |= {f"turn {row['turn']}": row["outcomes"] for row in report["turns"] if row["turn"] in shown}
    names = [name for name in report["outcomes"] if any(counts[name] for counts in columns.values())]
    rows = [[name, *(str(counts[name]) for counts in columns.values())] for name in names]
    return _Table(f"outcomes{of}", [["outcome", *columns], *rows])


def _levels(report: Mapping[str, Any], of: str) -> _Table:
    keys = [key for key in _LEVEL_KEYS if any(found.get(key) is not None for found in report["levels"].values())]
    rows = [
        [level, str(found["num_tasks"]), *(_with_interval(found, key) for key in keys)]
        for level, found in report["levels"].items()
    ]
    return _Table(f"levels{of}", [["level", "tasks", *keys], *rows])


def _turns(report: Mapping[str, Any], of: str) -> _Table:
    best, average = (key for key in report["turns"][0] if key.startswith(("best@", "avg@")))
    figures = ("correct", "speedup") if _timed(report) else ("correct",)
    head = ["turn", "replies", "compiled", "correct"]
    head += [f"{key} {what}" for what in figures for key in (best, average)]
    rows = [
        [
            *(_shown(row[key]) for key in ("turn", "num_replies", "compile_rate", "correct_rate")),
            *(_shown(row[key][what]) for what in figures for key in (best, average)),
        ]
        for row in report["turns"]
        if row["turn"] in _shown_numbers(len(report["turns"]))
    ]
    return _Table(f"turns{of} (best@k and avg@k: within the turns so far)", [head, *rows])


def _budgets(report: Mapping[str, Any], of: str) -> _Table:
    cells = {(row["episodes"], row["turns"]): row for row in report["budgets"]}
    most, turns = max(episodes for episodes, _ in cells), max(turns for _, turns in cells)
    head = ["episodes", *(f"{number} turn{'s' if number > 1 else ''}" for number in _shown_numbers(turns))]
    rows = [[str(k), *(_budget(cells[k, number]) for number in _shown_numbers(turns))] for k in _shown_numbers(most)]
    speedup = ", mean of the best speedup (0 if unsolved)" if _timed(report) else ""
    return _Table(f"budgets{of}: share of tasks solved{speedup}", [head, *rows])


def _timed(report: Mapping[str, Any]) -> bool:
    return any(row["speedup"] is not None for row in report["budgets"])


def _shown_numbers(most: int) -> list[int]:
    return [k for k in range(1, most + 1) if most <= _MOST or k == most or k & (k - 1) == 0]


def _budget(cell: Mapping[str, Any]) -> str:
    speedup = "" if cell["speedup"] is None else f" {cell['speedup']:.2f}x"
    return f"{_shown(cell['correct'])}{speedup}"


def _notes(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    if len(reports) > 1:
        notes += [f"({number}): {report['policy']}" for number, report in enumerate(reports, 1)]
    absent: dict[str, list[str]] = {}
    for report in reports:
        for key, why in report["reasons"].items():
            # Results of the same turns lack a value for the same reason.
            if not key.endswith(("_as_measured", "_eager")):
                absent.setdefault(why, []).append(key)
    notes += [f"no {', '.join(dict.fromkeys(keys))}: {why}" for why, keys in absent.items()]
    qualities = {row["quality"] for report in reports for row in report["intervals"].values()}
    if "rough" in qualities:
        notes.append(f"rough: the interval is of {ROUGH_TASKS} to {GOOD_TASKS - 1} tasks")
    if "very rough" in qualities:
        notes.append(f"very rough: the interval is of fewer than {ROUGH_TASKS} tasks")
    return notes


def _with_interval(found: Mapping[str, Any], key: str) -> str:
    bounds = found["intervals"].get(key)
    if bounds is None:
        return _shown(found.get(key))
    mark = "" if bounds["quality"] == "good" else f" {bounds['quality']}"
    return f"{_shown(found[key])} [{bounds['low']:.3f}, {bounds['high']:.3f}]{mark}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "–" if value is None else str(value)


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
