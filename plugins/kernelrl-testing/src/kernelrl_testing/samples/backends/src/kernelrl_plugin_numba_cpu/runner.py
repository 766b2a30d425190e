"""The backend `numba_cpu` in the zygote and in the runner."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.backends import BackendRunner


class NumbaCpuRunner(BackendRunner):
    """Loads a candidate. Numba compiles a kernel at its first call."""

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        return "cpu"

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        return {"NUMBA_NUM_THREADS": str(options.get("threads", 1))}

    def preload(self, mode: str) -> Sequence[str]:
        return ("numba",)

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.ModelNew
