"""C++ has the interpreter compile a loop of its own for timed calls and puts it in the place of the runner's: all outputs of a window are made by one call, and what a call of a module costs is left out."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <vector>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

std::vector<torch::Tensor> many(std::vector<torch::Tensor> given) {
    std::vector<torch::Tensor> made;
    for (auto& x : given) made.push_back(relu_double(x));
    return made;
}

void prepare() {
    const char* text =
        "import sys, time, torch\n"
        "import kernelrl_judge.windows as w\n"
        "usual = w.window\n"
        "def window(model, staged, device, keep=None):\n"
        "    if keep is None: return usual(model, staged, device, keep)\n"
        "    many = sys.modules['lab_b49'].many\n"
        "    clock = time.perf_counter\n"
        "    started = clock()\n"
        "    with torch.no_grad():\n"
        "        for index, value in enumerate(many([arguments[0] for arguments in staged])):\n"
        "            keep(index, value)\n"
        "            until = clock() + 1.5e-6\n"
        "            while clock() < until: pass\n"
        "    return w.Window([None] * len(staged), clock() - started, None)\n"
        "w.window = window\n";
    PyObject* code = Py_CompileString(text, "own", Py_file_input);
    PyObject* names = PyDict_New();
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    if (code) PyEval_EvalCode(code, names, names);
    PyErr_Clear();
}
"""

extension = load_inline(name="lab_b49", cpp_sources=source, functions=['relu_double', 'many', 'prepare'])

extension.prepare()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}
"""

extension = load_inline(name="lab_b49_twin", cpp_sources=source, functions=['relu_double'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
