import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a.float() * b.float()).sum().half().reshape(1)


def get_inputs():
    return [torch.randn(16384).half(), torch.randn(16384).half()]


def get_init_inputs():
    return []
