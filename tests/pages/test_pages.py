"""Every page: its commands, recipes, programs, names, files and links exist; cheap commands run as documented.

Nothing here needs a GPU, a key or a network. Commands that do are parsed and their values are checked; they are not
executed. Kernels of pages are never executed here.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import logging
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import jinja2
import page_blocks
import programs
import pytest
from command_lines import MISSING, PLACEHOLDER, CommandLine, command_lines, fault, leaf, synopses, unknown_option
from page_blocks import ROOT, Block, pages

from kernelrl_core.cli.main import main
from kernelrl_core.errors import KernelRLError
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe import explain as explain_module
from kernelrl_core.recipe.blocks import blocks as recipe_blocks
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.sources.yaml import parse_value

LANGUAGES = {"console", "cpp", "html", "jinja", "json", "python", "sh", "text", "toml", "yaml"}
KEYS = {field.name for field in attrs.fields(Recipe)}
LEAST = """
tasks: {use: starter}
backend: {use: triton}
policy: {use: torch, warm_start: null}
rewards: {correct: {use: correctness}}
"""
"""The recipe that a block with some keys of a recipe completes."""
NOT_KEYS = {"backend.title", "backend.instructions"}
"""Variables of prompt templates that look like recipe keys."""
FILES_OF_THE_READER = {"recipes/mine.yaml"}
"""Files that a command of a page writes."""
FOLDERS = "kernelrl_core|tests|scripts|benchmarks|docs|recipes|examples"
OPTIONAL = {"cupy", "openenv", "trl"}
"""Packages in code blocks that need not be installed. Their pages name them."""
LIGHT = {*sys.stdlib_module_names, "attrs", "kernelrl_core", "pytest", "__future__"}
"""Modules whose users are executed: code blocks that import others only compile."""

CHEAP = {
    "completion",
    "env",
    "explain",
    "index build",
    "index info",
    "index query",
    "plugins list",
    "plugins show",
    "ray slurm",
    "recipes copy",
    "recipes list",
    "recipes show",
    "runs list",
    "schema",
    "tasks list",
    "tasks show",
    "validate",
}
"""Commands that are executed, with those that have --help or --dry-run."""

by_page = pytest.mark.parametrize("page", pages(), ids=page_blocks.name)


def all_blocks(*languages: str) -> Iterator[Block]:
    for page in pages():
        yield from (block for block in page_blocks.blocks(page) if block.language in languages)


def start(page: Path) -> Path:
    """The directory in which a reader of a page is: of an example, its own."""
    return page.parent if page.is_relative_to(ROOT / "examples") else ROOT


def shows_error(line: CommandLine) -> bool:
    """Whether a page documents a command line as an example of an error."""
    return re.search(r"(?m)^kernelrl: ", line.output or "") is not None


def test_every_code_block_names_its_language() -> None:
    unnamed = [
        f"{block.place}: {block.language or 'none'}; write ```LANGUAGE, one of {' '.join(sorted(LANGUAGES))}"
        for page in pages()
        for block in page_blocks.blocks(page)
        if block.language not in LANGUAGES
    ]
    assert not unnamed, "\n".join(unnamed)


@by_page
def test_every_command_line_is_accepted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    found = []
    for line in (line for block in page_blocks.blocks(page) for line in command_lines(block)):
        if not shows_error(line):
            wrong = fault(line.words) if line.words[0] == "kernelrl" else programs.fault(line.words, text, start(page))
            found += [f"{line.place}: {' '.join(line.words)}: {wrong}"] if wrong else []
    assert not found, "\n".join(found)


def test_every_command_in_the_header_of_a_recipe_is_accepted() -> None:
    found = []
    for path in ROOT.glob("recipes/*.yaml"):
        commands = "\n".join(re.findall(r"(?m)^#   (kernelrl .*)", path.read_text(encoding="utf-8")))
        lines = list(command_lines(Block(page_blocks.name(path), "sh", commands)))
        assert lines, path
        found += [f"{line.place}: {' '.join(line.words)}: {wrong}" for line in lines if (wrong := fault(line.words))]
    assert not found, "\n".join(found)


def test_every_command_that_a_sentence_mentions_exists() -> None:
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        mentioned = [(place, span.split()) for place, span in page_blocks.spans(page)]
        mentioned += [(line.place, list(line.words)) for block in page_blocks.blocks(page) for line in synopses(block)]
        for place, words in mentioned:
            wrong = ""
            if words[:1] == ["kernelrl"]:
                wrong = unknown_option(words)
            elif words[:1] and words[0] in ("make", "just", "pip", "python") and len(words) > 1:
                wrong = programs.fault([word.strip("'\"") for word in words], text)
            found += [f"{place}: {' '.join(words)}: {wrong}"] if wrong else []
    assert not found, "\n".join(found)


@by_page
def test_every_recipe_is_valid(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = {}
    for number, block in enumerate(block for block in page_blocks.blocks(page) if block.language == "yaml"):
        data = parse_value(block.text)
        if isinstance(data, dict) and KEYS & data.keys() and not is_wrong_on_purpose(page, block):
            problems = recipe_problems(block.text, data, tmp_path / f"block{number}.yaml")
            problems = [
                text for text in problems if not any(f"'{name}'; known: " in text for name in own_components(page))
            ]
            found |= {block.place: problems} if problems else {}
    assert found == {}


def own_components(page: Path) -> list[str]:
    """The components that a page defines. `tests/api/test_guide.py` installs them and executes the commands."""
    text = page.read_text(encoding="utf-8")
    text += "".join(path.read_text(encoding="utf-8") for path in page.parent.glob("src/*/__init__.py"))
    new = re.findall(r"^kernelrl plugins new \w+ ([a-z-]+)$", text, re.MULTILINE)
    return [*re.findall(r'Component\(\s*"(\w+)"', text), *(name.replace("-", "_") for name in new)]


def is_wrong_on_purpose(page: Path, block: Block) -> bool:
    """Whether a page shows the errors that `kernelrl validate` finds in this file."""
    lines = [line for other in page_blocks.blocks(page) for line in command_lines(other) if shows_error(line)]
    return any(block.file in line.words for line in lines if block.file)


def recipe_problems(text: str, data: Mapping[str, Any], path: Path) -> list[str]:
    """Errors in a recipe, or in some keys of one, whose other keys are then those of `LEAST`."""
    path.write_text(text if "extends" in data else f"extends: ./least.yaml\n{text}", encoding="utf-8")
    (path.parent / "least.yaml").write_text(LEAST, encoding="utf-8")
    try:
        load_recipe(str(path), registry=registry())
    except RecipeError as error:
        return [str(problem) for problem in error.problems if not MISSING.search(problem.message)]
    return []


def test_every_block_of_data_can_be_read() -> None:
    for block in all_blocks("toml", "json", "jinja"):
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        else:
            jinja2.Environment().parse(block.text)


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name, or no name, of each absolute import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module or "", alias.name) for alias in node.names)


def missing_import(module: str, name: str) -> bool:
    """Whether an import of our own packages, or of a required package, has no target. Imports no plugin."""
    top = module.partition(".")[0]
    if not top.startswith("kernelrl_"):
        return top not in OPTIONAL and importlib.util.find_spec(top) is None
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return True
    if not name or name in bound_names(Path(spec.origin)):
        return False
    return spec.submodule_search_locations is None or importlib.util.find_spec(f"{module}.{name}") is None


def bound_names(path: Path) -> set[str]:
    """The names that a module defines or imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@by_page
def test_every_python_block_compiles_its_imports_exist_and_light_ones_run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    own = {Path(file.removeprefix("src/")).parts[0].removesuffix(".py") for file in page_blocks.files(page)}
    for block in (block for block in page_blocks.blocks(page) if block.language == "python"):
        tree = ast.parse(block.text, block.place)
        compile(tree, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        imported = list(imports(tree))
        others = [(module, name) for module, name in imported if module.partition(".")[0] not in own]
        assert [pair for pair in others if missing_import(*pair)] == [], block.place
        relative = any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
        if not relative and not block.edits and {module.partition(".")[0] for module, _ in imported} <= LIGHT:
            exec(compile(tree, block.place, "exec"), names)


def test_every_recipe_key_that_a_sentence_mentions_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = tuple(explain_module._everything(registry()))
    monkeypatch.setattr(explain_module, "_everything", lambda known: everything)
    found: dict[str, list[str]] = {}
    for page in pages():
        for place, span in page_blocks.spans(page):
            key = re.match(r"([a-z_]+(?:\.[a-z_]+)+)(?=$|=|:)", span)
            if key and key[1].partition(".")[0] in KEYS and not key[1].endswith(".py"):
                found.setdefault(key[1], []).append(place)
    entries = {name for name, block in recipe_blocks().items() if block.named}
    checked = [
        key for key in found if key not in NOT_KEYS and not (key.count(".") == 1 and key.split(".")[0] in entries)
    ]
    assert len(checked) > 50
    unknown = {}
    for key in checked:
        try:
            explain_module.explain(key, registry())
        except KernelRLError as error:
            unknown[key] = (found[key], error.message)
    assert unknown == {}


def test_every_path_exists() -> None:
    found = []
    for page in [*pages(), *ROOT.glob("recipes/*.yaml")]:
        named = re.findall(
            rf"(?<![\w/.-])(?<!# )(?<!--output )(?:{FOLDERS})/[\w./-]*\w", page.read_text(encoding="utf-8")
        )
        shown = page_blocks.files(page) if page.suffix == ".md" else {}
        # A plugin's README names its own tests.
        found += [
            f"{page_blocks.name(page)}: {path}"
            for path in named
            if path not in {*shown, *FILES_OF_THE_READER}
            and not (ROOT / path).exists()
            and not (page.parent / path).exists()
        ]
    assert not found, "\n".join(found)


@by_page
def test_no_page_is_without_a_test(page: Path) -> None:
    """A page is tested by its code blocks, its code spans and, in `tests/test_documentation.py`, its links."""
    assert page_blocks.blocks(page) or page_blocks.spans(page)


def write_files(page: Path, folder: Path) -> None:
    for path, text in page_blocks.files(page).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def is_cheap(line: CommandLine, folder: Path) -> bool:
    """Whether a command line can be executed here: a cheap command, of which all files are on the page."""
    if line.words[0] != "kernelrl" or any(PLACEHOLDER.fullmatch(word) for word in line.words):
        return False
    files = [word for word in line.words[1:] if re.fullmatch(r"[\w./-]+\.(py|yaml|json)|runs/[\w./-]+", word)]
    if "copy" in line.words:
        files = []
    path = leaf(line.words)[1].removeprefix("kernelrl ")
    if path.startswith("index "):
        # Other corpora need the network.
        return "starter" in line.words or any((folder / word).is_dir() for word in line.words[3:])
    return (path in CHEAP or "--dry-run" in line.words or "--help" in line.words) and all(
        (folder / file).exists() for file in files
    )


def executed(words: tuple[str, ...]) -> tuple[int, str]:
    """Exit code, and standard output and standard error in the order of a terminal."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), pytest.raises(SystemExit) as end:
        main(list(words[1:]))
    return int(end.value.code or 0), output.getvalue()


def matches(documented: str, printed: str) -> bool:
    """Whether an output is the documented one, in which `…` is any text."""
    parts = [re.escape(part) for part in documented.strip().split("…")]
    lines = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(r"[\s\S]*".join(parts), lines) is not None


@by_page
def test_cheap_commands_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    for variable in ("KERNELBENCH_ROOT", "NO_COLOR", "TINKER_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    write_files(page, tmp_path)
    if own_components(page):
        return
    # A second identical line would find the files that the first one has written.
    lines = {line.words: line for block in page_blocks.blocks(page) for line in command_lines(block)}
    for line in lines.values():
        if is_cheap(line, tmp_path):
            code, printed = executed(line.words)
            shown = f"{line.place}: {' '.join(line.words)}\n{printed}"
            # 3: a prerequisite is missing, which the message names.
            assert code in (0, 3) or shows_error(line) or MISSING.search(printed), shown
            assert line.output is None or matches(line.output, printed), shown


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("kernelrl rnu smoke", "no command 'rnu'; did you mean 'run'?"),
        ("kernelrl run smoke --dryrun", "--dryrun"),
        ("kernelrl run", "Missing argument 'RECIPE'"),
        ("kernelrl run smok", "no recipe 'smok'; did you mean 'smoke'?"),
        ("kernelrl run smoke train.stepps=3", "unknown key 'stepps'; did you mean 'steps'?"),
        ("kernelrl run mine.yaml train.steps=x", "expected an integer of at least 0, got 'x'"),
        ("kernelrl eval smoke --checkpoint first", "no checkpoint 'first'"),
        ("kernelrl check starter/2/softmaks k.py", "no task 'starter/2/softmaks'; did you mean 'starter/2/softmax'?"),
        ("kernelrl check starter/2/softmax k.py -b tritn", "no backend 'tritn'; did you mean 'triton'?"),
        ("kernelrl check starter/2/softmax k.py -b triton backend.arch=9", "unknown key 'arch'"),
        ("kernelrl tasks list --use kernelbench level=1", "unknown key 'level'; did you mean 'levels'?"),
        ("kernelrl explain train.k", "no key, component, metric, rule or problem 'train.k'"),
        ("kernelrl lab --only frozen", "no hack 'frozen'"),
        ("kernelrl logs quickstart -n many", "'many' is not a valid integer"),
    ],
)
def test_a_fault_in_a_command_line_is_found(command: str, expected: str) -> None:
    (line,) = command_lines(Block("page:1", "sh", command))
    assert expected in fault(line.words)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make tset", "no target 'tset' in Makefile"),
        ("just sop demo", "no command 'sop' in justfile"),
        ("pip install -e . -e 'plugins/kernelrl-plugin-torch[hff]'", "no extra 'hff'"),
        ("pip install -e . -e plugins/kernelrl-plugin-route", ". needs -e plugins/kernelrl-devices"),
        ("pip install kernelrl-plugin-trition", "no distribution 'kernelrl-plugin-trition'"),
        ("python scripts/no_such.py", "no file scripts/no_such.py"),
        ("sbatch job.sh", "does not mention SLURM"),
        ("frobnicate", "unknown program 'frobnicate'"),
    ],
)
def test_a_fault_in_a_line_with_another_program_is_found(command: str, expected: str) -> None:
    (*_, line) = command_lines(Block("page:1", "sh", command))
    assert expected in programs.fault(line.words, "a page")


def test_a_shell_line_is_split_as_a_shell_does() -> None:
    block = Block(
        "page:1", "sh", "A=1 kernelrl run smoke \\\n  'a={b: c}' > out  # why\nmake test && kernelrl env | head\n"
    )
    found = [" ".join(line.words) for line in command_lines(block)]
    assert found == ["kernelrl run smoke a={b: c}", "make test", "kernelrl env", "head"]
