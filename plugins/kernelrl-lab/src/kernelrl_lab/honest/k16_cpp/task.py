import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(12):
            y = y * 0.9 + 0.1
            y = torch.clamp(y, -2.0, 2.0)
        return y


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
