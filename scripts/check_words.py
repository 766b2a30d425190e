"""Lint step: find the phrases that scripts/phrases.toml replaces.

    python scripts/check_words.py [FILE ...]

Each phrase there has a pattern. This program searches for the patterns in prose:
Markdown, YAML and TOML comments, and the comments, docstrings, messages and test names of Python files. Code spans,
code blocks and quotations are not prose. Without arguments it reads every file that git tracks, except test data.

Exit code 0: no hit; 1: hits, one per line as path:line; 2: the phrases cannot be read.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHRASES = ROOT / "scripts" / "phrases.toml"
GLOSSARY = ROOT / "docs" / "glossary.md"

# Generated text, test data, and the test of this program, which quotes the phrases.
DATA = (
    "tests/test_check_words.py",
    "benchmarks/corpora/",
    "benchmarks/results/",
    "tests/data/",
    "plugins/kernelrl-plugin-starter/src/kernelrl_plugin_starter/data/",
)

_SPAN = re.compile(r"``[^`\n]*``|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|\]\([^)\n]*\)")
_TEST_NAME = re.compile(r"\s*(?:async )?def (test_\w+)")


def phrases(text: str) -> list[tuple[re.Pattern[str], str]]:
    """The (pattern, replacement) pairs of a file of phrases."""
    listed = tomllib.loads(text)["phrase"]
    return [(re.compile(_across_lines(one["pattern"]), re.IGNORECASE), one["write"]) for one in listed]


def _across_lines(pattern: str) -> str:
    """The pattern, with spaces that match line breaks too (not in look-behinds)."""
    return re.sub(r" (?!\))", r"\\s+", pattern)


def _blank(match: re.Match[str]) -> str:
    """As many characters without words, so that the positions of the rest stay."""
    return re.sub(r"[^\n]", "`", match.group())


def markdown_prose(text: str) -> str:
    """`text` with code blocks, code spans, quotations and link targets blanked."""
    text = re.sub(r"^(```|~~~).*?^\1", _blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\t|>).*$", _blank, text, flags=re.MULTILINE)
    return _SPAN.sub(_blank, text)


def yaml_prose(text: str) -> str:
    """The comments of `text`; all else is blanked."""
    return "\n".join(_SPAN.sub(_blank, line.partition("#")[2]) for line in text.split("\n"))


def python_prose(text: str) -> str:
    """The comments, docstrings, one-line strings of several words and test names of `text`, on their lines."""
    lines = [""] * (text.count("\n") + 2)

    def put(line: int, prose: str) -> None:
        for offset, part in enumerate(_SPAN.sub(_blank, prose).split("\n")):
            lines[line - 1 + offset] += " " + part

    tree = ast.parse(text)
    documented = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented[node.lineno] = node
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            put(line, token.string.lstrip("# "))
        elif token.type == tokenize.STRING:
            quotes = re.match(r"[a-zA-Z]*(\"\"\"|'''|\"|')", token.string)
            assert quotes is not None
            body = token.string[quotes.end() : -len(quotes.group(1))]
            # A triple-quoted string that documents nothing holds a program or a data file.
            if line in documented or (len(quotes.group(1)) == 1 and body.count(" ") > 1):
                put(line, body)
    for number, source in enumerate(text.split("\n"), 1):
        if match := _TEST_NAME.match(source):
            put(number, match.group(1).replace("_", " "))
    return "\n".join(lines)


PROSE = {
    ".md": markdown_prose,
    ".jinja": markdown_prose,
    ".yaml": yaml_prose,
    ".yml": yaml_prose,
    ".toml": yaml_prose,
    ".py": python_prose,
}


def hits(path: Path, patterns: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    """One line per phrase found in the file."""
    text = path.read_text()
    if path == GLOSSARY:
        # Its tables name terms that are not used.
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    prose = PROSE[path.suffix](text)
    for pattern, replacement in patterns:
        for match in pattern.finditer(prose):
            line = prose.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}: {' '.join(match.group().split())!r}; write: {replacement}"


def main(arguments: list[str]) -> int:
    try:
        patterns = phrases(PHRASES.read_text())
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        print(f"{PHRASES}: {error}", file=sys.stderr)
        return 2
    if arguments:
        paths = [Path(argument).resolve() for argument in arguments]
    else:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name and not name.startswith(DATA)]
    found = [hit for path in paths if path.suffix in PROSE and path.is_file() for hit in hits(path, patterns)]
    print("\n".join(sorted(found)) if found else "no phrase to replace")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
