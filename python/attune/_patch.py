"""A context in which PyTorch's attention calls attune."""

import contextlib
from collections.abc import Iterator
from typing import Optional

import torch
import torch.nn.functional as functional
from torch import Tensor

from attune import _reference
from attune._attention import sdpa


class Calls:
    """How many calls of PyTorch's function attune took, and how many it left to PyTorch."""

    def __init__(self) -> None:
        self.taken = 0
        self.fallback = 0

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Optional[Tensor] = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Optional[float] = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """torch.nn.functional.scaled_dot_product_attention, by attune where it can."""
        if _takes(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
            with contextlib.suppress(NotImplementedError):
                # A compiled call learns only when it runs that a shape is not supported.
                o = sdpa(query, key, value, causal=is_causal, scale=scale, fallback=torch.compiler.is_compiling())
                self.taken += 1
                return o
        self.fallback += 1
        return _reference.PYTORCH(
            query,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )


def _takes(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float,
           is_causal: bool, enable_gqa: bool) -> bool:  # fmt: skip
    if not (query.dim() == key.dim() == value.dim() == 4 and query.is_cuda):
        return False
    return (
        attn_mask is None
        and dropout_p == 0.0
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[-1] == value.shape[-1]
        and (enable_gqa or query.shape[1] == key.shape[1])
        and not (is_causal and query.shape[2] != key.shape[2])  # PyTorch aligns the mask to the first key
        and not (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad))
    )


@contextlib.contextmanager
def patch() -> Iterator[Calls]:
    """Replaces torch.nn.functional.scaled_dot_product_attention inside of a with block.

    Calls with a mask, dropout, gradients, other dtypes or shapes that attune does not support stay
    PyTorch's. Code that imported the function by name before is not affected. The block's target
    counts calls: `with attune.patch() as calls:`, then calls.taken and calls.fallback.
    """
    before = functional.scaled_dot_product_attention
    calls = Calls()
    functional.scaled_dot_product_attention = calls.attention
    try:
        yield calls
    finally:
        functional.scaled_dot_product_attention = before
