import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(256, 2048), torch.randn(2048, 256)]


def get_init_inputs():
    return []
