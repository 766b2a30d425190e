import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a @ b) * 2.0


def get_inputs():
    return [torch.randn(192, 256), torch.randn(256, 192)]


def get_init_inputs():
    return []
