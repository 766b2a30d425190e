import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.clamp(x, -1.0, 1.0)
        return x


def get_inputs():
    return [torch.randn(1000) * 2.0 + 0.5]


def get_init_inputs():
    return []
