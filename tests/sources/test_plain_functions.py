"""Plain functions, and files of C++ and CUDA, as the classes that an evaluator loads."""

from __future__ import annotations

import ast

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.sources.plain_functions import as_model, as_task, extension_as_model, in_own_file
from kernelrl_core.sources.task_source import parse_task_source

KERNEL = "import torch\n\n\ndef scale(x, factor=2.0):\n    return x * factor\n\n\nclass Norm:\n    pass\n"
TASK = "import torch\n\n\ndef relu(x):\n    return torch.relu(x)\n\n\ndef get_inputs():\n    return [torch.randn(8)]\n"
CPP = """#include <torch/extension.h>
// torch::Tensor commented(torch::Tensor x) { }
static torch::Tensor helper(torch::Tensor x) { return x; }
torch::Tensor relu(torch::Tensor x, double slope) {
    return helper(x);
}
"""


def test_a_function_is_called_by_the_class_and_every_line_stays() -> None:
    model = as_model(KERNEL, "scale", "k.py")
    assert model.startswith(KERNEL)
    assert "class ModelNew" in model
    assert "return scale(*inputs)" in model


def test_a_method_of_a_class_is_a_function() -> None:
    assert "return Norm.apply(*inputs)" in as_model(KERNEL, "Norm.apply", "k.py")


def test_a_class_is_the_model_under_its_name() -> None:
    assert as_model(KERNEL, "Norm", "k.py").endswith("class ModelNew(Norm):\n    pass\n")


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        (KERNEL, "scal", r"k\.py: it defines no 'scal'; did you mean 'scale'"),
        ("class ModelNew: ...\n", "scale", "it defines ModelNew"),
        (KERNEL, "scale()", "not the name of a function"),
    ],
)
def test_a_function_that_cannot_be_the_kernel_is_refused(source: str, function: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_model(source, function, "k.py")


def test_text_that_is_no_python_is_unchanged() -> None:
    assert as_model("a reply (", "scale", "k.py") == "a reply ("


def test_a_function_with_inputs_is_a_task() -> None:
    task = as_task(TASK, "t.py")
    parse_task_source(task, "t.py")
    assert "return relu(*inputs)" in task
    assert task.startswith(TASK)


def test_the_function_called_reference_is_the_task_among_several() -> None:
    several = f"{TASK}\n\ndef reference(x):\n    return relu(x)\n"
    assert "return reference(*inputs)" in as_task(several, "t.py")
    with pytest.raises(UsageError, match="2 functions could be the reference: relu, other"):
        as_task(several.replace("reference", "other"), "t.py")


def test_a_task_with_a_model_is_unchanged() -> None:
    assert as_task(f"class Model: ...\n{TASK}", "t.py") == f"class Model: ...\n{TASK}"


@pytest.mark.parametrize(
    ("file", "sources"), [("my-relu.cpp", "cpp_sources=_SOURCE"), ("r.cu", "cuda_sources=_SOURCE")]
)
def test_a_file_of_an_extension_keeps_the_numbers_of_its_lines(file: str, sources: str) -> None:
    model = extension_as_model(CPP, "", file)
    ast.parse(model)
    assert sources in model
    assert "_extension.relu(*inputs)" in model
    assert model.splitlines()[1:5] == CPP.splitlines()[1:5]


def test_device_code_gets_a_declaration() -> None:
    assert "cpp_sources='torch::Tensor relu(torch::Tensor x, double slope);'" in extension_as_model(CPP, "", "r.cu")


def test_bound_functions_are_known_by_the_names_that_the_file_gives() -> None:
    bound = CPP + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &relu); }\n'
    model = extension_as_model(bound, "", "r.cpp")
    assert "_extension.forward(*inputs)" in model
    assert "functions=" not in model


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        ("void relu(const float* x, float* y, int n) {\n}\n", "", r"no function takes or returns a torch::Tensor"),
        (f"{CPP}torch::Tensor other(torch::Tensor x) {{\n}}\n", "", "it has the functions relu, other"),
        (CPP, "rely", "no function 'rely' with tensors; did you mean 'relu'"),
    ],
)
def test_a_file_without_a_function_that_is_the_kernel_is_refused(source: str, function: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        extension_as_model(source, function, "r.cpp")


@pytest.mark.parametrize(
    ("message", "own"),
    [
        ("candidate.py:5:9: error: x", "src/r.cu:5:9: error: x"),
        ("candidate.py(5): error: x", "src/r.cu(5): error: x"),
        # Lines of the class that follows the file.
        ("Raised:\n  line 99, in forward: return _extension.relu(*inputs)", "Raised:\n  src/r.cu:4, in relu"),
        ("Raised:\n  line 99, in <module>: _extension = load_inline(", "Raised:"),
        ("Raised:\n  line 3, in forward: x", "Raised:\n  line 3, in forward: x"),
    ],
)
def test_a_message_has_the_file_and_its_lines(message: str, own: str) -> None:
    assert in_own_file(message, extension_as_model(CPP, "", "src/r.cu"), "src/r.cu") == own


def test_a_message_about_python_keeps_its_lines() -> None:
    message = "Raised:\n  line 5, in scale: return x * factor\ncandidate.py:5: bad"
    assert in_own_file(message, KERNEL, "k.py") == "Raised:\n  line 5, in scale: return x * factor\nk.py:5: bad"
