"""What bench times beside the kernel. Inputs and results are CUDA tensors."""

import torch
import torch.nn.functional as F

TILE = 16384  # kTile of reduce.cu


def torch_sum(axes, inputs):
    x = inputs["x"]
    if axes["n"] % TILE:
        x = F.pad(x, (0, -axes["n"] % TILE))
    partial = x.view(-1, TILE).sum(dim=1)
    queue = torch.zeros(2, dtype=torch.int32, device=x.device)
    return {"partial": partial, "y": partial.sum(dim=0, keepdim=True), "queue": queue}
