"""Build a wheel and a source distribution of the core and of every folder of plugins/, and check them.

    python scripts/dist.py          (make dist)

All have the version of `kernelrl_core/version.py`. Each wheel is built from its source distribution. `dist/` is
replaced at once, and only when everything passed. The last check installs the core into an empty environment; pip gets
its dependencies from the index or from its cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from packaging.metadata import Metadata

from kernelrl_core.storage import replace_directory
from kernelrl_core.version import __version__

ROOT = Path(__file__).parents[1]
FINAL = ROOT / "dist"


def projects() -> list[Path]:
    """Folders of all distributions, the core first."""
    return [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def build(project: Path, output: Path) -> tuple[Path, Path]:
    """Build a distribution.

    Args:
        output: an existing directory; receives the two files.

    Returns:
        The wheel and the source distribution that it was built from.

    Raises:
        SystemExit: the build failed; its output is the message.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{project}: not built\n{done.stdout}{done.stderr}")
    stem = f"{_settings(project)['project']['name'].replace('-', '_')}-{__version__}"
    return output / f"{stem}-py3-none-any.whl", output / f"{stem}.tar.gz"


def wheel_problems(wheel: Path, project: Path) -> Iterator[str]:
    """Faults of a wheel: its metadata, its licence, or a file that only the wheel or only the repository has."""
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (information,) = {name.partition("/")[0] for name in names if name.partition("/")[0].endswith(".dist-info")}
        yield from _metadata_problems(archive.read(f"{information}/METADATA"), project)
        licence = f"{information}/licenses/LICENSE"
        if licence not in names or archive.read(licence) != (ROOT / "LICENSE").read_bytes():
            yield "LICENSE is missing or differs from that of the repository"
    packed = {name for name in names if not name.startswith(f"{information}/")}
    expected = package_files(project)
    yield from (f"{name} is a test or a cache" for name in sorted(expected) if is_superfluous(name))
    for name in sorted(packed ^ expected):
        yield f"{name} is not a file of the repository" if name in packed else f"{name} is missing"
    for package in {name.partition("/")[0] for name in expected}:
        if f"{package}/py.typed" not in expected:
            yield f"the repository has no {package}/py.typed"


def is_superfluous(name: str) -> bool:
    """Whether a file of a wheel is a cache or a test of its package. Samples of plugins have tests of their own."""
    parts = PurePosixPath(name).parts
    return "__pycache__" in parts or "tests" in parts[:2]


def sdist_problems(sdist: Path, project: Path) -> Iterator[str]:
    """Faults of a source distribution: its metadata, or a file that is missing or does not belong there."""
    with tarfile.open(sdist) as archive:
        members = {str(PurePosixPath(*PurePosixPath(member.name).parts[1:])): member for member in archive}
        information = archive.extractfile(members["PKG-INFO"]) if "PKG-INFO" in members else None
        yield from _metadata_problems(information.read() if information else b"", project)
    for name in {"LICENSE", "README.md", "pyproject.toml"} - members.keys():
        yield f"{name} is missing"
    repository = {str(path.relative_to(project)) for path in _repository_files(project)}
    for name in sorted(members.keys() - repository - {"PKG-INFO", ".gitignore"}):
        yield f"{name} is not a file of the repository"
    yield from (f"{name} is no regular file" for name, member in sorted(members.items()) if not member.isfile())


def _settings(project: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))


def _metadata_problems(text: bytes, project: Path) -> Iterator[str]:
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"metadata: {error}" for error in group.exceptions)
        return
    if (metadata.name, str(metadata.version)) != (_settings(project)["project"]["name"], __version__):
        yield f"metadata: {metadata.name} {metadata.version}, expected version {__version__}"
    for field in ("summary", "description", "license_expression", "license_files", "requires_python"):
        if not getattr(metadata, field):
            yield f"metadata: no {field}"


def package_files(project: Path) -> set[str]:
    """Paths in the wheel of the files that the repository has for it."""
    wheel = _settings(project)["tool"]["hatch"]["build"]["targets"]["wheel"]
    places = {project / name: Path(name).name for name in wheel["packages"]}
    places |= {project / source: target for source, target in wheel.get("force-include", {}).items()}
    return {
        str(PurePosixPath(target, path.relative_to(place)))
        for place, target in places.items()
        for path in _repository_files(place)
    }


def _repository_files(place: Path) -> list[Path]:
    """Files at or below a place that git tracks, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", str(place)]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def installed_core_problems(core: Path) -> Iterator[str]:
    """Faults when only the core is installed, in an environment that knows nothing of the repository."""
    with tempfile.TemporaryDirectory(prefix="kernelrl-dist-") as folder:
        place = Path(folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KERNELRL_"))}
        environment |= {"KERNELRL_CACHE_DIR": folder}
        started = time.monotonic()
        venv.create(place / "env", with_pip=True)
        programs = place / "env/bin"

        def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            command = [str(programs / program), *arguments]
            return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)

        quiet = ("--disable-pip-version-check", "--quiet")
        for program, *arguments in (
            ("python", "-m", "pip", *quiet, "install", "--find-links", str(core.parent), str(core)),
            ("kernelrl", "plugins", "list"),
        ):
            done = call(program, *arguments)
            if done.returncode:
                yield f"{program} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
                return
        print(f"core installed into an empty environment, plugins listed: {time.monotonic() - started:.1f} s")
        if call("python", "-c", "import torch").returncode == 0:
            yield "the core brings torch"
        validated = call("kernelrl", "validate", "smoke")
        if validated.returncode != 3 or "pip install kernelrl-plugin-" not in validated.stderr:
            yield f"kernelrl validate smoke: exit code {validated.returncode}, not 3\n{validated.stderr}"


def main() -> None:
    scratch = ROOT / "build"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        output = Path(folder) / "dist"
        output.mkdir()
        problems: list[str] = []
        for project in projects():
            wheel, sdist = build(project, output)
            print(f"{wheel.name}  {wheel.stat().st_size / 1000:.0f} kB, source {sdist.stat().st_size / 1000:.0f} kB")
            problems += (f"{wheel.name}: {problem}" for problem in wheel_problems(wheel, project))
            problems += (f"{sdist.name}: {problem}" for problem in sdist_problems(sdist, project))
        problems += installed_core_problems(output / f"kernelrl-{__version__}-py3-none-any.whl")
        if problems:
            sys.exit("\n".join([*problems, "fix: correct the files named above; dist/ is unchanged"]))
        replace_directory(output, FINAL)
    print(f"{FINAL.name}/: {len(projects())} distributions of version {__version__}")


if __name__ == "__main__":
    main()
