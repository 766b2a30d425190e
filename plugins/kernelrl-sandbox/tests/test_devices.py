"""Device nodes of a runner: those of one GPU, if it is certain which one it uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_sandbox.devices import device_nodes

FIRST, SECOND = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
COMMON = ["null", "urandom"]
NVIDIA = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]


def machine(root: Path, nodes: list[str], gpus: dict[str, int] | None = None) -> str:
    for node in nodes:
        path = root / "dev" / node
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for place, (uuid, minor) in enumerate((gpus or {}).items()):
        folder = root / f"proc/driver/nvidia/gpus/0000:0{place}:00.0"
        folder.mkdir(parents=True)
        folder.joinpath("information").write_text(
            f"GPU UUID: \t {uuid}\nBus Location: \t 0000:0{place}:00.0\nDevice Minor: \t {minor}\n"
        )
    return f"{root}/"


def dev(*names: str) -> set[str]:
    return {f"/dev/{name}" for name in names}


def test_a_runner_on_the_cpu_has_no_gpu(tmp_path: Path) -> None:
    root = machine(tmp_path, [*COMMON, *NVIDIA, "nvidia0", "kvm"])
    assert set(device_nodes({}, on_gpu=False, root=root) or ()) == dev(*COMMON)


def test_a_node_that_makes_memory_of_no_process_is_for_drivers_of_gpus_alone(tmp_path: Path) -> None:
    root = machine(tmp_path, [*COMMON, "zero", *NVIDIA, "nvidia0"])
    found = [device_nodes({}, on_gpu=on_gpu, root=root) or [] for on_gpu in (False, True)]
    assert ["/dev/zero" in nodes for nodes in found] == [False, True]


def test_the_gpu_with_the_uuid_is_the_only_one(tmp_path: Path) -> None:
    # Numbers of nodes do not follow the order of the bus.
    root = machine(tmp_path, [*COMMON, *NVIDIA, "nvidia0", "nvidia1"], {FIRST: 1, SECOND: 0})
    for visible, minor in ((FIRST, 1), (SECOND, 0), ("GPU-2222", 0)):
        found = device_nodes({"CUDA_VISIBLE_DEVICES": visible}, on_gpu=True, root=root)
        assert set(found or ()) == dev(*COMMON, *NVIDIA, f"nvidia{minor}")


@pytest.mark.parametrize("visible", ["", "0", "1", "GPU-", "GPU-3333", f"{FIRST},{SECOND}", "MIG-1111"])
def test_among_several_no_other_name_is_certain(tmp_path: Path, visible: str) -> None:
    root = machine(tmp_path, [*COMMON, *NVIDIA, "nvidia0", "nvidia1"], {FIRST: 0, SECOND: 1})
    assert device_nodes({"CUDA_VISIBLE_DEVICES": visible}, on_gpu=True, root=root) is None


@pytest.mark.parametrize("visible", ["", "0", FIRST])
def test_the_only_gpu_needs_no_name(tmp_path: Path, visible: str) -> None:
    root = machine(tmp_path, [*COMMON, *NVIDIA, "nvidia3"])
    found = device_nodes({"CUDA_VISIBLE_DEVICES": visible}, on_gpu=True, root=root)
    assert set(found or ()) == dev(*COMMON, *NVIDIA, "nvidia3")


def test_a_part_of_a_gpu_needs_more_than_its_node(tmp_path: Path) -> None:
    root = machine(tmp_path, [*COMMON, *NVIDIA, "nvidia0"])
    assert device_nodes({"CUDA_VISIBLE_DEVICES": "MIG-1111"}, on_gpu=True, root=root) is None


def test_nodes_that_the_driver_has_yet_to_make_are_not_missed(tmp_path: Path) -> None:
    root = machine(tmp_path, [*COMMON, "nvidiactl", "nvidia0"])
    assert device_nodes({}, on_gpu=True, root=root) is None


def test_amd_and_windows_have_nodes_of_their_own(tmp_path: Path) -> None:
    amd = machine(tmp_path / "amd", [*COMMON, "kfd", "dri/renderD128", "dri/card0"])
    assert set(device_nodes({}, on_gpu=True, root=amd) or ()) == dev(*COMMON, "kfd", "dri/renderD128")
    two = machine(tmp_path / "two", [*COMMON, "kfd", "dri/renderD128", "dri/renderD129"])
    assert device_nodes({}, on_gpu=True, root=two) is None
    windows = machine(tmp_path / "windows", [*COMMON, "dxg"])
    assert set(device_nodes({}, on_gpu=True, root=windows) or ()) == dev(*COMMON, "dxg")
