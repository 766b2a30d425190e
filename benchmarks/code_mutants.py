"""Do the tests catch faults of the core and of the judge? Draws mutants of their source and runs tests on each.

    python benchmarks/code_mutants.py --output before.json                    # draw 60 mutants and run them
    python benchmarks/code_mutants.py --output after.json --before before.json  # run the same mutants later

**Draw.** A mutant is one edit of one line of `kernelrl_core` or `kernelrl_judge`, of one of these kinds:

- `boundary`: `<` and `<=`, or `>` and `>=`, exchanged
- `comparison`: `==` and `!=`, `is` and `is not`, or `in` and `not in`, exchanged
- `condition`: the condition of an `if`, a `while` or a conditional expression negated
- `logic`: `and` and `or` exchanged
- `arithmetic`: `+` and `-`, or `*` and `/`, exchanged
- `constant`: a number increased by one, `True` and `False` exchanged
- `statement`: a call whose result is unused, `raise`, `continue` or an augmented assignment removed

Both packages give half of the mutants, all kinds take turns, and the seed is fixed. Annotations, `strict=` and
`__all__` are no places for edits. The result names each edit by its definition and its line, so a later revision that
moved the definition to another file has the same mutants; one that changed the line has no such mutant (`gone`).

**Tests.** A test file covers a mutant by the number of its lines that import the module (3 each) or name the edited
top-level definition (1 each; names of at least five letters). If none does, the files of the directory that mirrors the
module count, by lines that name the module (3 each) or evaluate something (1 each). The first two by that number run
in a copy of the tree, in one process, without slow tests and up to the first failure. A mutant is `caught` when a test
fails with it and passes without it, `not caught` when all tests pass, and `time limit` when they do not end. With
`--before`, the file whose test caught a mutant before runs first if it still exists.

The exit status is 1 if a mutant that was caught before is not caught now. PyPI's mutmut and cosmic-ray run the same
tests on each mutant of a module, and cosmic-ray removes no statements.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from provenance import provenance

ROOT = Path(__file__).parents[1]
PACKAGES = {"core": "kernelrl_core", "judge": "plugins/kernelrl-judge/src/kernelrl_judge"}
SEED = 20261127
FILES_PER_MUTANT = 2
EXCHANGED: dict[type[ast.AST], tuple[str, str, str]] = {
    ast.Lt: ("boundary", "<", "<="),
    ast.LtE: ("boundary", "<=", "<"),
    ast.Gt: ("boundary", ">", ">="),
    ast.GtE: ("boundary", ">=", ">"),
    ast.Eq: ("comparison", "==", "!="),
    ast.NotEq: ("comparison", "!=", "=="),
    ast.Is: ("comparison", "is", "is not"),
    ast.IsNot: ("comparison", "is not", "is"),
    ast.In: ("comparison", "in", "not in"),
    ast.NotIn: ("comparison", "not in", "in"),
    ast.And: ("logic", "and", "or"),
    ast.Or: ("logic", "or", "and"),
    ast.Add: ("arithmetic", "+", "-"),
    ast.Sub: ("arithmetic", "-", "+"),
    ast.Mult: ("arithmetic", "*", "/"),
    ast.Div: ("arithmetic", "/", "*"),
}
KINDS = ("boundary", "comparison", "condition", "logic", "arithmetic", "constant", "statement")
Mutant = dict[str, Any]
Row = dict[str, Any]


def _nodes(node: ast.AST, definitions: tuple[str, ...] = ()) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Nodes of executed code below a node, each with the names of the definitions around it."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if not isinstance(child, ast.AST) or (isinstance(child, ast.keyword) and child.arg == "strict"):
                continue
            inner = definitions
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*definitions, child.name)
            yield child, inner
            yield from _nodes(child, inner)


def _between(left: ast.expr, right: ast.expr, old: str, new: str, line: str) -> tuple[int, int, str] | None:
    """Columns of an operator between two operands of one line, and its replacement."""
    if left.end_lineno != right.lineno:
        return None
    start, end = left.end_col_offset or 0, right.col_offset
    place = re.search(rf"(?<!\w){re.escape(old)}(?![\w=])", line[start:end])
    return (start + place.start(), start + place.end(), new) if place else None


def _edit(node: ast.AST, lines: list[str]) -> tuple[str, int, int, int, str] | None:
    """Kind, line (from 1), first and last column and new text of the edit at a node; None without one."""
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp):
        operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
        if type(operator) not in EXCHANGED:
            return None
        kind, old, new = EXCHANGED[type(operator)]
        if isinstance(node, ast.Compare):
            left, right = node.left, node.comparators[0]
        elif isinstance(node, ast.BoolOp):
            left, right = node.values[0], node.values[1]
        else:
            left, right = node.left, node.right
        number = left.end_lineno or 0
        found = _between(left, right, old, new, lines[number - 1])
        return (kind, number, *found) if found else None
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        test = node.test
        if test.lineno != test.end_lineno:
            return None
        text = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
        return "condition", test.lineno, test.col_offset, test.end_col_offset or 0, f"(not ({text}))"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        new = str(not node.value if isinstance(node.value, bool) else node.value + 1)
        return "constant", node.lineno, node.col_offset, node.end_col_offset or 0, new
    removable = isinstance(node, ast.Raise | ast.Continue | ast.AugAssign)
    if removable or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)):
        assert isinstance(node, ast.stmt)
        if node.lineno != node.end_lineno:
            return None
        return "statement", node.lineno, node.col_offset, node.end_col_offset or 0, "pass"
    return None


def edits(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    source = path.read_text()
    lines = source.splitlines()
    for node, definitions in _nodes(ast.parse(source)):
        edit = _edit(node, lines)
        if edit is None or not definitions or not lines[edit[1] - 1].isascii():
            continue
        kind, number, start, end, new = edit
        line = lines[number - 1]
        yield {
            "file": str(path.relative_to(ROOT)),
            "definition": ".".join(definitions),
            "kind": kind,
            "line": number,
            "old": line.strip(),
            "new": (line[:start] + new + line[end:]).strip(),
        }


def draw(count: int) -> list[Mutant]:
    """Distinct mutants: half of each package, the kinds in turn."""
    drawn: list[Mutant] = []
    for position, directory in enumerate(PACKAGES.values()):
        chooser = random.Random(SEED + position)
        by_kind: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
        for path in sorted((ROOT / directory).rglob("*.py")):
            for mutant in edits(path):
                by_kind[mutant["kind"]].append(mutant)
        for mutants in by_kind.values():
            chooser.shuffle(mutants)
        share = count // 2
        for turn in range(share):
            drawn.append(by_kind[KINDS[turn % len(KINDS)]].pop())
    return drawn


def located(mutant: Mutant) -> tuple[Path, int] | None:
    """File and line of a mutant in this tree: where it was drawn or, if its definition moved, where that is now."""
    places = []
    for path in [*(ROOT / PACKAGES["core"]).rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        if mutant["old"] not in path.read_text():
            continue
        for other in edits(path):
            if all(other[key] == mutant[key] for key in ("definition", "old", "new")):
                places.append((path, int(other["line"])))
    if not places:
        return None

    def distance(place: tuple[Path, int]) -> tuple[bool, bool, int]:
        path, line = place
        drawn = Path(mutant["file"])
        return path != ROOT / drawn, path.name != drawn.name, abs(line - int(mutant["line"]))

    return min(places, key=distance)


def test_files() -> list[Path]:
    """All test files of the repository that need no GPU."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]
    return sorted(file for file in files if not file.stem.endswith("_on_gpu"))


def covering(path: Path, definition: str) -> list[str]:
    """The test files of a definition, by the rule above."""
    relative = path.relative_to(ROOT)
    source = relative if relative.parts[0] != "plugins" else relative.relative_to("plugins", relative.parts[1], "src")
    module = ".".join(source.with_suffix("").parts)
    top = definition.split(".")[0]
    name = re.compile(rf"\b{re.escape(top)}\b" if len(top) >= 5 else r"(?!)")
    mirror = ROOT / "tests" / source.parts[1] if len(source.parts) > 2 else ROOT / "tests"
    if relative.parts[0] == "plugins":
        mirror = ROOT / relative.parts[0] / relative.parts[1] / "tests"
    scores: dict[Path, int] = {}
    mirrored: dict[Path, int] = {}
    for file in test_files():
        lines = file.read_text().splitlines()
        imports = sum(bool(re.search(rf"\b{re.escape(module)}\b", line)) for line in lines)
        names = sum(bool(name.search(line)) for line in lines)
        if score := 3 * imports + names:
            scores[file] = score
        if file.parent == mirror:
            mirrored[file] = sum(3 * (path.stem in line) + ("evaluate" in line) for line in lines)
    chosen = scores or mirrored
    best = sorted(chosen, key=lambda file: (-chosen[file], file.parent != mirror, str(file)))
    return [str(file.relative_to(ROOT)) for file in best[:FILES_PER_MUTANT]]


def copied() -> Path:
    """A copy of the files of the tree that git tracks or would track."""
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    copy = Path(tempfile.mkdtemp(prefix="kernelrl-mutants-"))
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def run_tests(copy: Path, tests: list[str], limit_s: float) -> tuple[str, str]:
    """`passed`, `failed` or `time limit`, and the node id of the first test that failed.

    pytest runs in a fork of this process, which has imported the slow libraries and nothing of the project.
    """
    sources = [str(copy), *(str(path) for path in sorted(copy.glob("plugins/*/src")))]
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(copy)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            # Bytecode of a file that changes twice a second would be taken for the older one's.
            os.environ |= {"PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
            sys.dont_write_bytecode = True
            sys.path[:0] = sources
            status = 99
            with contextlib.suppress(BaseException):
                status = int(pytest.main(["-x", "-q", "-n0", "-m", "not slow and not gpu", *tests]))
            sys.stdout.flush()
            os._exit(status)
        ends = time.monotonic() + limit_s
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if ended == (0, 0):
            os.waitpid(child, 0)
            return "time limit", ""
        output.seek(0)
        text = output.read()
    if os.waitstatus_to_exitcode(ended[1]) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "passed", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - |$)", text, re.MULTILINE)
    return "failed", failed.group(1) if failed else ""


def measure(mutant: Mutant, before: Row | None, copy: Path, limit_s: float) -> Row:
    """Run the tests of a mutant."""
    place = located(mutant)
    if place is None:
        return {**mutant, "result": "gone"}
    path, line = place
    tests = covering(path, mutant["definition"])
    if before is not None and before["result"] == "caught":
        earlier = str(before["test"]).split("::")[0]
        if (ROOT / earlier).is_file():
            tests = [earlier, *(test for test in tests if test != earlier)]
    file = copy / path.relative_to(ROOT)
    original = file.read_text()
    lines = original.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(mutant["old"], mutant["new"])
    started = time.monotonic()
    file.write_text("".join(lines))
    try:
        end, test = run_tests(copy, tests, limit_s) if tests else ("passed", "")
    finally:
        file.write_text(original)
    duration_s = round(time.monotonic() - started, 1)
    result = {"passed": "not caught", "failed": "caught"}.get(end, end)
    # A test that fails without the mutant as well says nothing about it.
    without = run_tests(copy, [test or tests[0]], limit_s)[0] if end == "failed" else "passed"
    if without != "passed":
        result = "fails without it"
    now = {"file": str(path.relative_to(ROOT)), "line": line}
    return {**mutant, **now, "tests": tests, "test": test, "result": result, "duration_s": duration_s}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="a result: run its mutants")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--limit-s", type=float, default=900.0, help="time limit of the tests of a mutant")
    options = parser.parse_args()
    earlier: list[Row] = json.loads(options.before.read_text())["rows"] if options.before else []
    mutants = earlier or draw(options.count)
    for library in ("torch", "hypothesis", "xdist", "attrs", "cattrs", "click", "rich", "jinja2"):
        importlib.import_module(library)
    copy = copied()
    rows: list[Row] = []
    try:
        for number, mutant in enumerate(mutants):
            row = measure(mutant, earlier[number] if earlier else None, copy, options.limit_s)
            rows.append(row)
            print(f"{number + 1:3} {row['result']:16} {row['file']}:{row['line']}  {row['new']}", flush=True)
            options.output.write_text(json.dumps({"provenance": provenance(), "rows": rows}, indent=1) + "\n")
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    counts = {result: sum(row["result"] == result for row in rows) for result in sorted({r["result"] for r in rows})}
    print(counts)
    lost = [
        new
        for old, new in zip(earlier, rows, strict=False)
        if old["result"] == "caught" and new["result"] not in ("caught", "gone")
    ]
    for row in lost:
        print(f"lost: {row['file']}:{row['line']}  {row['new']}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
