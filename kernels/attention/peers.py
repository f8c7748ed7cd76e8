"""What bench times beside the kernels on BF16 tensors. Inputs and results are CUDA tensors."""

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from reference import softmax_scale


def views(axes, inputs):
    """Q, K and V as (batch, heads, rows, D)."""
    return (inputs[n].transpose(1, 2) if axes["rows_first"] else inputs[n] for n in ("q", "k", "v"))


def torch_sdpa(axes, inputs, backend):
    if axes["causal"] and axes["queries"] != axes["keys"]:
        raise ValueError("its causal mask is aligned to the first key, ours to the last")
    q, k, v = views(axes, inputs)
    with sdpa_kernel(backend):
        o = F.scaled_dot_product_attention(
            q, k, v, is_causal=bool(axes["causal"]), scale=softmax_scale(axes, q.shape[-1]), enable_gqa=axes["group"] > 1
        )
    return {"o_bf16": o.transpose(1, 2) if axes["rows_first"] else o}


def cudnn(axes, inputs):
    return torch_sdpa(axes, inputs, SDPBackend.CUDNN_ATTENTION)


def flash(axes, inputs):
    return torch_sdpa(axes, inputs, SDPBackend.FLASH_ATTENTION)


def flash3(axes, inputs):
    from flash_attn_interface import flash_attn_func  # not everywhere

    q, k, v = (x.transpose(1, 2) for x in views(axes, inputs))
    o = flash_attn_func(q, k, v, softmax_scale=softmax_scale(axes, q.shape[-1]), causal=bool(axes["causal"]))
    o = o[0] if isinstance(o, tuple) else o
    return {"o_bf16": o if axes["rows_first"] else o.transpose(1, 2)}
