import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, values):
        return values.new_zeros(1000000).index_add(0, ids, values)


def get_inputs():
    return [torch.randint(0, 1000000, (64,)), torch.randn(64)]


def get_init_inputs():
    return []
