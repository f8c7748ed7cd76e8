"""What bench times beside the kernel. Inputs and results are CUDA tensors."""

import torch.nn.functional as F


def torch_rms_norm(axes, inputs):
    return {"y": F.rms_norm(inputs["x"], (axes["n"],), inputs["w"], 1e-5)}
