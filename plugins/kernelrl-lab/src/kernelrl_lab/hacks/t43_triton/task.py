import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, table):
        return torch.tanh(table[ids]) * 2.0


def get_inputs():
    return [torch.randint(0, 2048, (32,)), torch.randn(2048, 64)]


def get_init_inputs():
    return []
