"""The user's package, which a kernel imports: its files as text, and what a kernel imports of it.

The files travel with every evaluation and lie read-only beside the kernel. A package is the user's own, as a task is:
rules on sources read the kernel's file alone.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from kernelrl_core.errors import UsageError, nearest_path
from kernelrl_core.types.packages import MAX_PACKAGE_BYTES, MAX_PACKAGE_FILES, package_problem
from kernelrl_sources.syntax import MAX_SOURCE_CHARACTERS, parse

__all__ = [
    "absolute_imports",
    "import_root",
    "imported_texts",
    "module_name",
    "needs_package",
    "package_files",
    "read_package",
    "require_importable",
    "top_modules",
]

_SUFFIXES_TEXT = """
.py .pyi .cu .cuh .hip .cpp .cc .cxx .c .h .hpp .hxx .inl .inc .json .toml .yaml .yml .txt .csv
"""
_SUFFIXES = frozenset(_SUFFIXES_TEXT.split())
"""Files that travel: sources and small data. Compiled files do not: nobody can read them."""
_SKIPPED_FOLDERS = ("__pycache__", "node_modules")
_RELATIVE = re.compile(r"from(\s+)(\.+)([\w.]*)(\s+import\b)")


def read_package(folder: str) -> dict[str, str]:
    """The files of a package: path relative to its import root -> text.

    Args:
        folder: a directory that contains packages or modules, or a package (a directory with `__init__.py`).

    Raises:
        UsageError: the directory cannot be read, has no Python file, or is too large.
    """
    start = Path(folder)
    if not start.is_dir():
        raise UsageError(
            f"--path {folder}: no such directory{nearest_path(folder)}",
            fix="name the directory of a package",
            see="kernel-files",
        )
    root = import_root(start)
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for path in package_files(start):
        key = Path(os.path.abspath(path)).relative_to(os.path.abspath(root)).as_posix()
        text = _text(path)
        if text is not None:
            files[key] = text
            top = path.relative_to(start).parts[0]
            sizes[top] = sizes.get(top, 0) + len(text)
        if len(files) > MAX_PACKAGE_FILES or sum(sizes.values()) > MAX_PACKAGE_BYTES:
            largest = max(sizes, key=sizes.__getitem__)
            raise UsageError(
                f"--path {folder}: more than {MAX_PACKAGE_FILES:,} files or {MAX_PACKAGE_BYTES >> 20} MiB; the largest "
                f"part is {largest}",
                fix="name the directory of the package itself",
                see="kernel-files",
            )
    if not any(key.endswith(".py") for key in files):
        raise UsageError(
            f"--path {folder}: no file *.py in it", fix="name the directory of a package", see="kernel-files"
        )
    for parent in _packages_above(start, root):
        files.setdefault(parent.relative_to(root).as_posix(), _text(parent) or "")
    if problem := package_problem(files):
        raise UsageError(f"--path {folder}: {problem}", see="kernel-files")
    return files


def import_root(folder: Path) -> Path:
    """The directory from which the modules in `folder` are imported: `folder`, or the first above it that is no
    package."""
    absolute = Path(os.path.abspath(folder))
    return next(place for place in (absolute, *absolute.parents) if not (place / "__init__.py").is_file())


def _packages_above(start: Path, root: Path) -> Iterator[Path]:
    """The `__init__.py` of the packages that contain `start`."""
    for place in Path(os.path.abspath(start)).parents:
        if not place.is_relative_to(root) or place == root:
            return
        yield place / "__init__.py"


def package_files(start: Path) -> Iterator[Path]:
    """The files that travel, in a stable order. Links to directories are not followed."""
    for place, folders, names in os.walk(start):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED_FOLDERS
            and not name.startswith(".")
            and not name.endswith(".egg-info")
            and not (Path(place) / name / "pyvenv.cfg").is_file()
        )
        yield from (Path(place) / name for name in sorted(names) if Path(name).suffix in _SUFFIXES)


def _text(path: Path) -> str | None:
    """The text of a file; None for data that is no text.

    Raises:
        UsageError: it cannot be read, or is Python in another encoding than UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", see="kernel-files") from error
    except UnicodeDecodeError as error:
        if path.suffix == ".py":
            raise UsageError(f"{path}: not a text file in UTF-8", see="kernel-files") from error
        return None


def module_name(file: str, folder: str) -> str:
    """Dotted name of the module that a kernel's file is in a package; empty if the file is elsewhere."""
    root, path = import_root(Path(folder)), Path(os.path.abspath(file))
    if path.suffix != ".py" or not path.is_relative_to(os.path.abspath(folder)):
        return ""
    return ".".join(path.relative_to(root).with_suffix("").parts)


def absolute_imports(source: str, module: str) -> str:
    """A module's source with absolute imports in place of its relative ones, line by line. The kernel is loaded as a
    module of its own, outside of its package.

    Args:
        module: dotted name of the module.
    """
    tree = _parsed(source)
    if tree is None:
        return source
    lines = source.split("\n")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = ".".join(module.split(".")[: -node.level])
            target = ".".join(filter(None, (package, node.module)))
            if not target:  # beyond the import root: Python refuses it
                continue
            index = node.lineno - 1
            before, line = lines[index][: node.col_offset], lines[index][node.col_offset :]
            lines[index] = before + _RELATIVE.sub(rf"from\g<1>{target}\g<4>", line, count=1)
    return "\n".join(lines)


def imported_texts(source: str, files: Mapping[str, str]) -> list[str]:
    """The texts of the modules of a package that a source imports, each once, with what these import.

    Only the first `MAX_SOURCE_CHARACTERS` characters of all are returned, in whole modules.
    """
    found: dict[str, str] = {}
    waiting = [(source, "")]
    characters = len(source)
    while waiting:
        text, module = waiting.pop(0)
        tree = _parsed(text)
        for name in _imported(tree, module) if tree is not None else ():
            for key in _keys(name, files):
                if key not in found and characters + len(files[key]) < MAX_SOURCE_CHARACTERS:
                    found[key] = files[key]
                    characters += len(files[key])
                    inside = key.removesuffix(".py").replace("/", ".")
                    waiting.append((files[key], inside))
    return list(found.values())


def top_modules(files: Mapping[str, str]) -> tuple[str, ...]:
    """The names under which a kernel may import something of a package."""
    return tuple(sorted({_top(key) for key in files if key.endswith(".py")}))


def _top(key: str) -> str:
    return PurePosixPath(key).parts[0].removesuffix(".py")


def _keys(name: str, files: Mapping[str, str]) -> Iterator[str]:
    """The files that are executed when a module is imported, or an object of one: those of its packages and its own."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        path = "/".join(parts[:length])
        yield from (key for key in (f"{path}/__init__.py", f"{path}.py") if key in files)


def _imported(tree: ast.Module, module: str) -> Iterator[str]:
    """Dotted names of imported modules and objects.

    Args:
        module: name of the file that imports, with `.__init__` for a package; empty: the kernel's.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(module.split(".")[: -node.level]) if node.level else ""
            base = ".".join(filter(None, (package, node.module)))
            yield from (f"{base}.{alias.name}".removeprefix(".") for alias in node.names)


# --- imports that are missing ---------------------------------------------------------------------------------------


def require_importable(source: str, file: str, files: Mapping[str, str]) -> None:
    """Check that a kernel imports no package of the user's which does not travel with it.

    A module that is found nowhere is the kernel's own mistake, and no error here.

    Raises:
        UsageError: it does; the message has the line and the directory for `--path`.
    """
    tree = _parsed(source)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and node.level:
            name, folder = "." * node.level + (node.module or ""), import_root(Path(file).parent)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            lacking = [(name, place) for name in names if (place := _outside(name, Path(file), files)) is not None]
            if not lacking:
                continue
            name, folder = lacking[0]
        else:
            continue
        raise UsageError(
            f"{file}:{node.lineno}: it imports {name}, and --path does not contain it",
            fix=f"--path {os.path.relpath(folder)}",
            see="kernel-files",
        )


def needs_package(source: str) -> bool:
    """Whether a kernel imports a module that is neither in the standard library nor installed."""
    tree = _parsed(source)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and node.level:
            return True
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
            if not all(any(map(_is_installed, _installed_in(top))) for top in tops):
                return True
    return False


def _outside(name: str, file: Path, files: Mapping[str, str]) -> Path | None:
    """The import root of a module of the user's that does not travel; None if it does, or is installed, or is
    unknown."""
    top = name.partition(".")[0]
    if not top or top in sys.stdlib_module_names or top in top_modules(files):
        return None
    places = _installed_in(top)
    if any(_is_installed(place) for place in places):
        return None
    near = [*Path(os.path.abspath(file)).parents[:4], Path.cwd(), Path.cwd() / "src"]
    roots = [*near, *(Path(place).parent for place in places)]
    return next((root for root in roots if _has_module(root, top)), None)


def _has_module(root: Path, top: str) -> bool:
    return (root / f"{top}.py").is_file() or (root / top / "__init__.py").is_file()


def _installed_in(top: str) -> Sequence[str]:
    """File or directories of a top-level module that this interpreter would import. Nothing is imported."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return ()
    if spec is None:
        return ()
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))


def _is_installed(place: str) -> bool:
    """Whether a candidate sees a file: those of the interpreter and its packages, not those of an editable install."""
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return any(Path(place).is_relative_to(folder) for folder in folders if folder)


def _parsed(source: str) -> ast.Module | None:
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Module) else None
