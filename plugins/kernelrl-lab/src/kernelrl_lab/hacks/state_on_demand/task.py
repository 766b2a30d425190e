import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(512, 512))

    def forward(self, x):
        self.history.mul_(0.9).add_(x, alpha=0.1)
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
