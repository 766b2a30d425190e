import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, table):
        rows = table[ids % 512] * 2.0
        return torch.where((ids == 0)[:, None], torch.zeros_like(rows), rows)


def get_inputs():
    return [torch.randint(0, 1000000, (32,)), torch.randn(512, 64)]


def get_init_inputs():
    return []
