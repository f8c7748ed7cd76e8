"""A context in which PyTorch's attention calls attune."""

import contextlib

import torch
import torch.nn.functional as functional

from attune._attention import sdpa

_original = functional.scaled_dot_product_attention


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, by attune where it can."""
    grouped = query.dim() == 4 and key.dim() == 4 and query.shape[1] != key.shape[1]
    takes = (
        attn_mask is None
        and dropout_p == 0.0
        and query.is_cuda
        and query.dim() == key.dim() == value.dim() == 4
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[-1] == value.shape[-1]
        and not (grouped and not enable_gqa)
        and not (is_causal and query.shape[2] != key.shape[2])  # PyTorch aligns the mask to the first key
        and not (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad))
    )
    if takes:
        with contextlib.suppress(NotImplementedError):
            return sdpa(query, key, value, causal=is_causal, scale=scale)
    return _original(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)


@contextlib.contextmanager
def patch():
    """Replaces torch.nn.functional.scaled_dot_product_attention inside of a with block.

    Calls with a mask, dropout, gradients, other dtypes or shapes that attune does not support stay
    PyTorch's. Code that imported the function by name before is not affected.
    """
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before
