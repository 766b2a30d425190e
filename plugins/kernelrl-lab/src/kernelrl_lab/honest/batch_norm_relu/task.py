import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12).eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(4, 12, 80)]


def get_init_inputs():
    return []
