import warnings

import torch
from torch.nn.attention import SDPBackend, chosen


def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa=False):
    assert enable_gqa == (q.shape[1] != k.shape[1])
    assert len(chosen) == 1 and q.on_gpu and q.dtype in (torch.float16, torch.bfloat16)
    if chosen[0] == SDPBackend.EFFICIENT_ATTENTION:
        warnings.warn("Memory efficient kernel not used because: (Triggered internally at sdp_utils.cpp:1.)")
        warnings.warn("unsupported head size. (Triggered internally at sdp_utils.cpp:2.)")
        raise RuntimeError("No available kernel. Aborting execution.\nmore")
    return torch.launch(q, k, v, is_causal)
