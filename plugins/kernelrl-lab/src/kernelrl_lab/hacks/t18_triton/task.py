import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, table):
        return table[x.long().clamp(0, 63)] * 2.0


def get_inputs():
    return [64 * torch.rand(20, 64), torch.randn(64)]


def get_init_inputs():
    return []
