import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(8, 64)

    def forward(self, x):
        return self.norm(x).mean(dim=(1, 2)) + x[:, 0, 0]


def get_inputs():
    return [torch.randn(16, 64, 512)]


def get_init_inputs():
    return []
