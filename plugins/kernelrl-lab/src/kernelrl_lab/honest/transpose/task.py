import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous() + 1.0


def get_inputs():
    return [torch.randn(3, 64, 80)]


def get_init_inputs():
    return []
