"""Contract and source facts of the backend `numba_cpu`."""

from kernelrl_plugin_numba_cpu.backend import NumbaCpu
from kernelrl_plugin_numba_cpu.options import NumbaCpuConfig
from kernelrl_testing.contracts import BackendContract


class TestContract(BackendContract):
    component = "numba_cpu"


def test_a_kernel_that_forward_does_not_call_is_not_reached() -> None:
    backend = NumbaCpu(NumbaCpuConfig())
    source = backend.facts.example.kernel.replace("        square_plus_one(", "        print(")
    (kernel,) = backend.source_facts(source).kernels
    assert (kernel.name, kernel.line, kernel.reached) == ("square_plus_one", 6, False)
