"""Bad input of every kind: the right exit code, a few lines that name what and where, no traceback, no file touched."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from kernelrl_command_server import CommandServer

FAKES = Path(__file__).parents[1] / "fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 1, group_size: 8, steps: 2}
eval:      {at_start: false, at_end: false}
"""
TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
EMPTY = "tasks={use: directory, path: empty}"
RELU = "starter/1/relu_double"
LINES = 4
"""Maximum number of lines of an error: files, problem, fix, entry."""

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@attrs.frozen
class Case:
    arguments: list[str]
    code: int
    words: str
    """Regular expression to be found on stderr, or on stdout where the command gives a verdict (exit code 1)."""

    files: dict[str, str | bytes] = attrs.field(factory=dict)
    """Path -> content, written before the command."""

    mark: pytest.MarkDecorator | None = None


def plugin(name: str, source: str) -> dict[str, str | bytes]:
    """Files of an installed plugin, to be found where the command is started."""
    info = f"{name}-1.dist-info"
    return {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\nRequires-Dist: kernelrl<1\n",
        f"{info}/entry_points.txt": f"[kernelrl]\n{name} = {name}\n",
    }


BROKEN = plugin("faulty", "import a_module_that_is_not_there\n")
TWIN = plugin(
    "twin",
    "from kernelrl_core.api import Component, hookimpl\n"
    "@hookimpl\n"
    "def kernelrl_policies():\n"
    "    return [Component('fake', 'twin:Policy')]\n",
)
MISSPELT = plugin(
    "slip",
    "import attrs\n"
    "from kernelrl_core.api import Component, hookimpl\n"
    "from kernelrl_core.api.rewards import Reward, RewardConfig\n"
    "@attrs.frozen\n"
    "class Options(RewardConfig):\n"
    "    def need_timing(self): ...\n"
    "class Slip(Reward):\n"
    "    def score(self, turn): ...\n"
    "@hookimpl\n"
    "def kernelrl_rewards():\n"
    "    return [Component('slip', 'slip:Slip', config='slip:Options')]\n",
)
NO_RULE = plugin(
    "norule",
    "from kernelrl_core.api import Component, hookimpl\n"
    "from kernelrl_core.api.checkers import Checker\n"
    "class Sleep(Checker):\n"
    "    rules = ('sleep',)\n"
    "    def check(self, candidate, task, evaluation): return ()\n"
    "@hookimpl\n"
    "def kernelrl_checkers():\n"
    "    return [Component('sleep', 'norule:Sleep')]\n",
)
without_gpu = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")

CASES = {
    "unknown command": Case(["valdate"], 2, r"no command 'valdate'; did you mean 'validate'\?"),
    "unknown component": Case(["validate", "quickstart", "policy.use=torhc"], 2, r"policy\.use: .*mean 'torch'\?"),
    "component of a plugin that is not installed": Case(
        ["validate", "quickstart", "policy.use=acme:fast"],
        3,
        r"policy\.use: no policy 'acme:fast': no plugin 'acme' is installed; .*kernelrl plugins list",
    ),
    "component of a misspelt plugin": Case(
        ["validate", "quickstart", "policy.use=torhc:torch"], 2, r"policy\.use: .*did you mean 'torch:torch'\?"
    ),
    "unknown component in a file": Case(
        ["validate", "a.yaml"],
        2,
        r"a\.yaml:2: policy\.use: .*'torch'",
        {"a.yaml": "extends: quickstart\npolicy: {use: torhc}\n"},
    ),
    "broken plugin": Case(
        ["validate", "quickstart", "policy.use=faulty:x"],
        3,
        r"(?s)faulty.*a_module_that_is_not_there.*kernelrl plugins show faulty",
        BROKEN,
    ),
    "two plugins with one name": Case(["validate", "small.yaml"], 2, r"small\.yaml:4: .*fake:fake.*twin:fake", TWIN),
    "misspelt key": Case(
        ["validate", "a.yaml"],
        2,
        r"a\.yaml:3: train\.group_sise: .*did you mean 'group_size'\?",
        {"a.yaml": "extends: quickstart\ntrain:\n  group_sise: 3\n"},
    ),
    "wrong type": Case(
        ["validate", "a.yaml"],
        2,
        r"a\.yaml:3: train\.group_size: expected an integer of at least 1, got 'many'",
        {"a.yaml": "extends: quickstart\ntrain:\n  group_size: many\n"},
    ),
    "missing recipe": Case(
        ["validate", "nowhere.yaml"], 2, r"(?s)no recipe 'nowhere\.yaml'.*fix: kernelrl recipes list"
    ),
    "misspelt recipe file": Case(
        ["validate", "mine.yml"], 2, r"no recipe 'mine\.yml'; did you mean 'mine\.yaml'\?", {"mine.yaml": ""}
    ),
    "misspelt recipe file of an evaluation": Case(
        ["eval", "./mien.yaml"], 2, r"no run or recipe .*did you mean 'mine\.yaml'\?", {"mine.yaml": ""}
    ),
    "no runs": Case(["report", "quickstart"], 2, r"(?s)this directory has no runs.*fix: .*kernelrl run RECIPE"),
    "not YAML": Case(["validate", "a.yaml"], 2, r"a\.yaml:2: not YAML", {"a.yaml": "a: [1\nb: 2\n"}),
    "duplicate key": Case(
        ["validate", "a.yaml"],
        2,
        r"a\.yaml:3: key 'seed' .*line 2",
        {"a.yaml": "extends: quickstart\nseed: 1\nseed: 2\n"},
    ),
    "circle of extends": Case(
        ["validate", "a.yaml"],
        2,
        r"b\.yaml:1: extends: .*a\.yaml -> b\.yaml -> a\.yaml",
        {"a.yaml": "extends: b.yaml\n", "b.yaml": "extends: a.yaml\n"},
    ),
    "unknown override": Case(
        ["validate", "quickstart", "train.stesp=1"], 2, r"command line: train\.stesp: .*did you mean 'steps'\?"
    ),
    "no tasks to list": Case(
        ["tasks", "list", "--use", "directory", "path=empty"], 2, r"no task was found; .*empty", {"empty/a.txt": ""}
    ),
    "no tasks to train on": Case(["run", "quickstart", EMPTY], 2, r"no task was found; .*empty", {"empty/a.txt": ""}),
    "task that does not parse": Case(
        ["check", "t.py", "k.py"], 2, r"t\.py:1: not Python", {"t.py": "def broken(:\n", "k.py": ""}
    ),
    "task nested too deeply": Case(
        ["check", "t.py", "k.py"], 2, r"t\.py: nested too deeply", {"t.py": f"x = {'-' * 100_000}1\n", "k.py": ""}
    ),
    "recipe nested too deeply": Case(
        ["validate", "a.yaml"], 2, r"a\.yaml: nested too deeply", {"a.yaml": "[" * 100_000}
    ),
    "binary junk for a task": Case(
        ["check", "t.py", "k.py"], 2, r"t\.py: not a text file", {"t.py": bytes(range(256)) * 40, "k.py": ""}
    ),
    "10 MB for a task": Case(
        ["check", "t.py", "k.py"], 2, r"t\.py: not a task: longer", {"t.py": "#" * 10**7, "k.py": ""}
    ),
    "task without inputs": Case(
        ["check", "t.py", "k.py"], 2, r"t\.py:1: not a task: .*get_inputs", {"t.py": "class Model: ...\n", "k.py": ""}
    ),
    "missing task file": Case(
        ["check", "tasks/rleu.py", "k.py"], 2, r"no such file; did you mean 'tasks/relu\.py'\?", {"tasks/relu.py": ""}
    ),
    "missing kernel": Case(
        ["check", RELU, "softmx.py"], 2, r"softmx\.py: .*No such file.*mean 'softmax\.py'\?", {"softmax.py": ""}
    ),
    "folder for a kernel": Case(["check", RELU, "."], 2, r"\.: .*[Dd]irectory"),
    "kernel that is not Python": Case(
        ["check", RELU, "k.py"],
        1,
        r"(?s)^format_error  .*The file is not valid Python\. Line 3: invalid syntax: def broken\(:$",
        {"k.py": "class ModelNew:\n    pass\ndef broken(:\n"},
    ),
    "prose for a kernel": Case(
        ["check", RELU, "k.py"],
        1,
        r"(?s)^format_error  .*\nThe file is neither Python nor a saved reply with a code block\. As Python: Line 1",
        {"k.py": "Sure, here is my kernel.\n"},
    ),
    "binary junk for a kernel": Case(["check", RELU, "k.py"], 1, r"^format_error  ", {"k.py": bytes(range(256)) * 40}),
    "10 MB for a kernel": Case(
        ["check", RELU, "k.py"],
        1,
        r"(?s)^format_error  .*at most \d+ are accepted",
        {"k.py": "x = 1  # text\n" * 714_286},
    ),
    "binary junk for a recipe": Case(["validate", "a.yaml"], 2, r"a\.yaml", {"a.yaml": bytes(range(256)) * 40}),
    "unknown task": Case(["tasks", "show", "starter/1/nosuch"], 2, r"(?s)'starter/1/nosuch'.*fix: kernelrl tasks list"),
    "unknown plugin": Case(["plugins", "show", "nosuch"], 2, r"(?s)no plugin 'nosuch'.*fix: kernelrl plugins list"),
    "component for a plugin": Case(
        ["plugins", "show", "correctness"],
        2,
        r"(?s)no plugin 'correctness'; it is a reward of plugin 'rewards'.*fix: kernelrl plugins show rewards",
    ),
    "misspelt method of a plugin": Case(
        ["plugins", "check", "slip"],
        1,
        r"^rewards: slip: FAILS: Options\.need_timing is not .*; did you mean 'needs_timing'\?; fix: rename it, .*\n$",
        MISSPELT,
    ),
    "rule of a plugin that is text": Case(
        ["plugins", "check", "norule"], 1, r"^checkers: sleep: FAILS: .* rules must be a list or tuple of Rule", NO_RULE
    ),
    "unknown kind of a new plugin": Case(
        ["plugins", "new", "rewrds", "brief"],
        2,
        r"(?sm)no kind of plugin 'rewrds'; did you mean 'rewards'\?.*fix: kernelrl plugins new rewards brief$",
    ),
    "impossible name of a new plugin": Case(
        ["plugins", "new", "rewards", "My reward"],
        2,
        r"(?sm)name 'My reward': .*fix: kernelrl plugins new rewards my-reward$",
    ),
    "name of another component for a new plugin": Case(
        ["plugins", "new", "feedback", "raw"],
        2,
        r"(?s)feedback formatter 'raw' exists already, in kernelrl-plugin-feedback",
    ),
    "name of another plugin for a new plugin": Case(
        ["plugins", "new", "rewards", "local"], 2, r"plugin 'local' exists already, in kernelrl-plugin-local"
    ),
    "name of a command for a new plugin": Case(
        ["plugins", "new", "commands", "run"], 2, r"(?s)command 'run' exists already, .*new commands my-run"
    ),
    "existing folder of a new plugin": Case(
        ["plugins", "new", "rewards", "brief"],
        2,
        r"(?s)kernelrl-plugin-brief already exists.*fix: choose another path",
        {"kernelrl-plugin-brief/README.md": "mine"},
    ),
    "missing folder of a new plugin": Case(
        ["plugins", "new", "rewards", "brief", "--output", "here/brief"], 2, r"(?s)here does not exist.*fix: mkdir -p"
    ),
    "context too small for the prompts": Case(
        ["validate", "quickstart", "policy.context_tokens=257"],
        2,
        r"command line: policy\.context_tokens: a context of 257 tokens cannot hold a prompt .*; set it to 1024",
    ),
    "context of a server's model too small": Case(
        ["validate", "tinker_local", "policy.local.context_tokens=257"],
        2,
        r"command line: policy\.local\.context_tokens: a context of 257 tokens cannot hold a prompt .*; set it to 1024",
    ),
    "prompt limit too small for the prompts": Case(
        ["validate", "quickstart", "prompt.max_tokens=9"],
        2,
        r"command line: prompt\.max_tokens: the longest first prompt has \d+ tokens or more; set it to \d+ or more",
    ),
    "no GPU for a check": Case(
        ["check", RELU, "k.py", "backend.mode=gpu"],
        3,
        r"(?s)missing: a GPU.*fix: .*backend\.mode=interpreter",
        {"k.py": TASK},
        without_gpu,
    ),
    "no GPU for a run": Case(
        ["run", "quickstart", "backend.mode=gpu"],
        3,
        r"(?s)missing: a GPU.*fix: .*backend\.mode=interpreter",
        {},
        without_gpu,
    ),
}


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Call:
    """The command line, started in an empty directory that holds everything it may read or write."""
    (tmp_path / "small.yaml").write_text(RECIPE)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "HOME": str(tmp_path / "home"),
            "KERNELRL_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": f"{FAKES}{os.pathsep}{tmp_path}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = command_server.run(*arguments, cwd=tmp_path, env=environment)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    return run


def seconds_of_children() -> float:
    """Of the processor: others may have it for a while."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("case", [pytest.param(case, id=name, marks=case.mark or ()) for name, case in CASES.items()])
def test_bad_input_is_named_in_a_few_lines_and_no_file_is_touched(kernelrl: Call, tmp_path: Path, case: Case) -> None:
    for name, content in case.files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before, began_s = tree(tmp_path), seconds_of_children()
    done = kernelrl(*case.arguments)
    assert seconds_of_children() - began_s < 10
    told, silent = (done.stdout, done.stderr) if case.code == 1 else (done.stderr, done.stdout)
    assert done.returncode == case.code, done.stderr
    assert re.search(case.words, told), told
    assert len(told.splitlines()) <= LINES
    # The line of `kernelrl check` on a busy machine.
    assert silent.removeprefix("no result after 20 s; still evaluating\n") == ""
    assert tree(tmp_path) == before


def test_a_broken_plugin_harms_no_recipe_that_does_without_it(kernelrl: Call, tmp_path: Path) -> None:
    for name, content in BROKEN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(content))
    done = kernelrl("validate", "quickstart")
    assert (done.returncode, done.stdout) == (0, "quickstart: ok\n")
    assert re.fullmatch(r"recipe: \S+quickstart\.yaml \(bundled\)\n", done.stderr)


def refused(kernelrl: Call, root: Path, arguments: list[str], code: int, words: str) -> None:
    """The command fails in a few words and leaves every file as it was."""
    before = tree(root)
    done = kernelrl(*arguments)
    assert done.returncode == code, done.stderr
    assert re.search(words, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) <= LINES
    assert done.stdout == ""
    assert tree(root) == before


def test_existing_files_are_not_overwritten_and_unknown_names_get_the_nearest_name(
    kernelrl: Call, tmp_path: Path
) -> None:
    assert kernelrl("run", "small.yaml", "--name", "first").returncode == 0
    run = ["run", "small.yaml", "--name", "first"]
    refused(kernelrl, tmp_path, run, 2, r"(?s)runs/first already exists.*fix: kernelrl resume runs/first")
    for command in (["resume"], ["status"], ["logs"], ["runs", "show"]):
        refused(kernelrl, tmp_path, [*command, "frist"], 2, r"no run 'frist'.*did you mean 'first'\?")
    refused(kernelrl, tmp_path, ["eval", "first", "--checkpoint", "7"], 2, r"7")


def test_a_run_whose_recipe_was_edited_is_not_resumed(kernelrl: Call, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.fail=update").returncode == 1
    recipe = tmp_path / "runs/a/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("group_size: 8", "group_size: 4"))
    words = r"(?s)runs/a/recipe\.yaml was changed after the run started.*fix: .*--accept-changes"
    refused(kernelrl, tmp_path, ["resume", "a"], 2, words)


def test_a_damaged_last_line_is_moved_aside_and_the_run_continues(kernelrl: Call, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.fail=update").returncode == 1
    run = tmp_path / "runs/a"
    whole = (run / "samples.jsonl").read_text()
    with (run / "samples.jsonl").open("a") as stream:
        stream.write('{"sample": "torn')
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("fail: update", "fail: ''"))
    done = kernelrl("resume", "a", "--accept-changes")
    assert done.returncode == 0, done.stderr
    assert (run / "samples.jsonl").read_text().startswith(whole)
    assert (run / "samples.jsonl.damaged").read_text() == '{"sample": "torn\n'
    assert "cut off a damaged last line" in (run / "logs.log").read_text() + done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_named(kernelrl: Call, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        refused(kernelrl, tmp_path, ["run", "small.yaml", "--name", "a"], 1, r"runs/a: Permission denied")
    finally:
        tmp_path.chmod(0o755)
