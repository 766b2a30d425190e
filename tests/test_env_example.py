"""`.env.example` lists every environment variable that the code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_FOR_USERS = {
    "CUDA_MPS_PIPE_DIRECTORY": "set where NVIDIA's service shares a GPU",
    "LD_LIBRARY_PATH": "set where libraries are not in the usual directories",
    "PYTHONPATH": "set where modules are not installed",
    "OMP_NUM_THREADS": "set by the judge for the runner",
}
NAME = re.compile(r"[A-Z][A-Z0-9_]+")


def sources() -> list[Path]:
    """The code that a user runs, without the candidates of the lab."""
    found = [*ROOT.glob("kernelrl_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    not_run = ("kernelrl_testing", "kernelrl_lab/hacks", "kernelrl_lab/honest")
    return [path for path in found if not any(folder in path.as_posix() for folder in not_run)]


def is_environment(node: ast.expr) -> bool:
    return re.search(r"\benviron(ment)?$", ast.unparse(node)) is not None


def read_at(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions for the names that this node reads from an environment."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and is_environment(node.value):
        yield node.slice
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and is_environment(node.comparators[0]):
        yield node.left
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called.endswith("getenv") or re.search(r"\benviron(ment)?\.get$", called):
            yield node.args[0]
        yield from (word.value for word in node.keywords if word.arg == "environment")
    # The default of an option that names a variable.
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_env") and node.value is not None:
        yield node.value


def constants(source: str) -> dict[str, list[ast.expr]]:
    """Constants of a module that other modules can import, and their values."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = [node.value]
    return found


def read_variables(source: str, imported: Mapping[str, list[ast.expr]] | None = None) -> set[str]:
    """Names that are read: constants, and what constants of the module and loops over constants give to a name.

    Args:
        imported: constants of other modules.
    """
    tree = ast.parse(source)
    values: dict[str, list[ast.expr]] = dict(imported or {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                values.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            values.setdefault(ast.unparse(node.target), []).append(node.iter)

    def texts(node: ast.AST, depth: int = 0) -> Iterator[str]:
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value
            elif isinstance(one, ast.Name) and depth < 3:
                for value in values.get(one.id, []):
                    yield from texts(value, depth + 1)

    read = (text for node in ast.walk(tree) for found in read_at(node) for text in texts(found))
    return {text for text in read if NAME.fullmatch(text)}


def test_the_example_lists_every_variable_that_is_read() -> None:
    listed = re.findall(r"^#?([A-Z][A-Z0-9_]+)=$", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    addresses = constants((ROOT / "kernelrl_core/service_address.py").read_text(encoding="utf-8"))
    read = set().union(*(read_variables(path.read_text(encoding="utf-8"), addresses) for path in sources()))
    assert NOT_FOR_USERS.keys() <= read
    assert sorted(listed) == sorted(read - NOT_FOR_USERS.keys())
    assert listed[0] == "TINKER_API_KEY"


def test_every_way_of_reading_a_variable_is_found() -> None:
    source = """
_D = "DD"
os.environ["AA"]; os.environ.get("BB", ""); os.getenv("CC"); environment.get(_D); "EE" in os.environ
_F = ("FF", "GG")
any(os.environ.get(name) for name in _F)
Requires(environment=("HH",))
api_key_env: str = "II"
os.environ["SET"] = "1"
"""
    assert read_variables(source) == {"AA", "BB", "CC", "DD", "EE", "FF", "GG", "HH", "II"}
