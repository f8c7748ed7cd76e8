"""A call of attention: its arguments, how they lie in memory, and whether PyTorch must see it."""

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attune._check import Precision


class Call(NamedTuple):
    """The arguments of attend in src/call.c. A limit of the window is -1 for none."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    scale: Optional[float]
    window_size: tuple[int, int]
    sinks: Optional[Tensor]
    descale: Optional[Sequence[Tensor]]
    return_lse: bool
    out: Optional[Tensor]
    smooth_k: bool = False
    hadamard: bool = False
    cu_seqlens_q: Optional[Tensor] = None
    cu_seqlens_k: Optional[Tensor] = None
    max_seqlen_q: int = 0
    max_seqlen_k: int = 0
    lengths: Optional[Tensor] = None
    page_table: Optional[Tensor] = None
    precision: Precision = "auto"
    softcap: Optional[float] = None  # None and 0 are none
    alibi_slopes: Optional[Tensor] = None
    tree_mask: Optional[Tensor] = None


def capacity(call: Call) -> int:
    """The most keys of a sequence of a cache."""
    return int(call.k.shape[2]) * (1 if call.page_table is None else int(call.page_table.shape[1]))


def inputs(call: Call) -> list[Tensor]:
    """The tensors that a gradient may be wanted of."""
    of_heads = [x for x in (call.sinks, call.alibi_slopes) if x is not None]
    return [call.q, call.k, call.v, *of_heads, *(call.descale or ())]


def wants_gradient(call: Call) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in inputs(call))


def has_aligned_strides(x: Tensor) -> bool:
    """Whether rows lie at multiples of 16 bytes from the first one, and do not overlap."""
    size = x.element_size()
    strides = zip(x.shape[:-1], x.stride()[:-1])
    rows = x.shape[-1] == 1 or x.stride(-1) == 1
    return rows and all(n == 1 or (s * size % 16 == 0 and s >= x.shape[-1]) for n, s in strides)


def is_aligned(x: Tensor) -> bool:
    return x.data_ptr() % 16 == 0 and has_aligned_strides(x) and not x.is_neg()


def is_traced(*tensors: Tensor) -> bool:
    """Whether PyTorch must see the call: it compiles, traces, or runs a mode or a subclass."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    if torch._C._get_tracing_state() is not None:  # of torch.jit.trace
        return True
    return any(type(x) is not Tensor and type(x) is not torch.nn.Parameter for x in tensors)


def is_transformed(*tensors: Tensor) -> bool:
    """Whether torch.func transforms the call, or a tensor has a tangent: only PyTorch's own operators know both."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    unpack: Callable[[Tensor], Any] = forward_ad.unpack_dual
    return forward_ad._current_level >= 0 and any(unpack(x).tangent is not None for x in tensors)
