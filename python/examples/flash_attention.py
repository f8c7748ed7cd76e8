"""attune as PyTorch's flash attention, by attune.register(). It needs PyTorch 2.11 or later.

On a CPU PyTorch has no flash attention to exchange: its other attention computes the call.
"""

import doors
import torch
import torch.nn.functional as functional

import attune


@torch.no_grad()
def main(argv=None):
    device = doors.device(__doc__, argv)
    torch.manual_seed(1)
    q, k, v = (torch.randn(1, heads, 512, 128, device=device).bfloat16() for heads in (8, 2, 2))
    want = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    calls = attune.register()
    torch.backends.cuda.enable_cudnn_sdp(False)  # on Hopper PyTorch would take cuDNN before flash attention
    try:
        got = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
        torch.nn.attention.restore_flash_attention_impl()
    doors.report(got, want, calls)


if __name__ == "__main__":
    main()
