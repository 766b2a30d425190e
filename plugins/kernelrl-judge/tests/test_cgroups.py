"""Control groups: where they are made, what they are told, and that those without processes go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_judge.isolation import cgroups

MOUNTS = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def tree(root: Path, own: str, controllers: str = "cpu memory pids", mounts: str = MOUNTS) -> Path:
    """A file system in which this process is in the given group; returns the parent's directory."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"0::{own}\n")
    (root / "proc/self/mounts").write_text(mounts)
    place = (root / "sys/fs/cgroup" / own.lstrip("/")).parent
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup.subtree_control").write_text(controllers)
    (place / "cgroup.procs").write_text("")
    return place


def test_groups_are_made_beside_the_own_one(tmp_path: Path) -> None:
    place = tree(tmp_path, "/user.slice/app.slice/run-1.scope")
    assert cgroups.find_place(str(tmp_path)) == place


@pytest.mark.parametrize(
    ("own", "controllers", "mounts"),
    [
        ("/", "memory pids", MOUNTS),
        ("/../elsewhere", "memory pids", MOUNTS),
        ("/a/b", "memory", MOUNTS),
        ("/a/b", "", MOUNTS),
        ("/a/b", "memory pids", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"),
    ],
)
def test_without_delegation_there_is_no_place(tmp_path: Path, own: str, controllers: str, mounts: str) -> None:
    tree(tmp_path, own, controllers, mounts)
    assert cgroups.find_place(str(tmp_path)) is None


def test_a_limit_is_beyond_what_is_there(tmp_path: Path) -> None:
    for name, value in (("memory.current", 1 << 30), ("pids.current", 7)):
        (tmp_path / name).write_text(f"{value}\n")
    group = cgroups.Group(tmp_path)
    assert group.limit(512)
    assert int((tmp_path / "memory.max").read_text()) == (1 << 30) + (512 + 256 << 20)
    assert int((tmp_path / "pids.max").read_text()) == 7 + 256


def test_a_group_without_controllers_says_that_it_limits_nothing(tmp_path: Path) -> None:
    assert not cgroups.Group(tmp_path).limit(512)


def test_processes_that_memory_ended_are_counted(tmp_path: Path) -> None:
    group = cgroups.Group(tmp_path)
    assert group.killed() == 0
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert group.killed() == 2


def test_abandoned_groups_go_and_others_stay(tmp_path: Path) -> None:
    for name in ("kernelrl_1_ab", "kernelrl_2_cd/in_use", "other"):
        (tmp_path / name).mkdir(parents=True)
    cgroups.remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernelrl_2_cd", "other"]


JOIN = """
import os, sys
from pathlib import Path
from kernelrl_judge.isolation import cgroups
cgroups.find_place = lambda: Path(sys.argv[1])
group = cgroups.join()
print(group.path, "kernelrl_" in open("/proc/self/cgroup").read(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_leaves_a_group_that_the_next_removes() -> None:
    """In the real hierarchy, with or without controllers."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    top = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), "")
    place = top / own.lstrip("/") if top else None
    try:
        probe = place / "kernelrl_probe" if place else Path("/nowhere/at/all")
        probe.mkdir()
        probe.rmdir()
    except OSError:
        pytest.skip("this user may not make control groups")
    done = subprocess.run([sys.executable, "-c", JOIN, str(place)], capture_output=True, text=True, timeout=30)
    if "OSError" in done.stderr or "None" in done.stderr:
        pytest.skip("this process may not be moved into another control group")
    path, inside = done.stdout.split()
    assert (inside, done.returncode) == ("True", -9)
    assert Path(path).is_dir()
    cgroups.remove_abandoned(Path(path).parent)
    assert not Path(path).exists()
