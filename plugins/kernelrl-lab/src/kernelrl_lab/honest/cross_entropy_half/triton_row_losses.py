"""A mean that hardly depends on the drawn numbers: two draws often round to the same number."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_losses(x_ptr, labels_ptr, loss_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    largest = tl.max(x, axis=0)
    label = tl.load(labels_ptr + row)
    at_label = tl.load(x_ptr + row * n + label).to(tl.float32)
    tl.store(loss_ptr + row, largest + tl.log(tl.sum(tl.exp(x - largest), axis=0)) - at_label)


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        rows, n = logits.shape
        loss = torch.empty(rows, device=logits.device, dtype=torch.float32)
        row_losses[(rows,)](logits, labels, loss, n, BLOCK=triton.next_power_of_2(n))
        return loss.mean().to(logits.dtype)
