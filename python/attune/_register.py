"""attune as PyTorch's flash attention: torch.nn.attention.activate_flash_attention_impl("attune").

PyTorch's operators of flash attention get kernels that call attune, and PyTorch's own for the rest. The backward
operators stay PyTorch's: where a gradient is wanted, PyTorch computes the forward pass too.
"""

import threading
from typing import Any, Callable, Optional, cast

import torch
from torch import Tensor

from attune import _check, _door
from attune._attention import sdpa, sdpa_varlen
from attune._cache import decode
from attune._calls import Calls, Computed
from attune._patch import _MAX_DECODE_QUERIES

_KEY = "CUDA"  # the dispatch key; tests take another

_calls = Calls()


class _Within(threading.local):
    pytorch = False  # whether this thread is in a kernel of PyTorch that an attempt was left to


_within = _Within()


class Left(Exception):
    """Why attune leaves a call."""


def register(precision: Optional[str] = None) -> Calls:
    """Makes attune PyTorch's flash attention, until torch.nn.attention.restore_flash_attention_impl().

    Calls of the flash backend of scaled_dot_product_attention and of torch.nn.attention.varlen.varlen_attn are attune's
    then; those that attune does not compute, and all that want a gradient, stay PyTorch's. Which backend computes a
    call PyTorch chooses as before: on Hopper GPUs cuDNN comes first, unless torch.backends.cuda.enable_cudnn_sdp(False)
    or torch.nn.attention.sdpa_kernel says otherwise.

    precision: "fp8" or "16" for attune.sdpa; by default attune chooses. The result counts the calls.
    """
    if precision is not None:
        _check.known_precision(cast(_check.Precision, precision))
    attention: Any = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(
            f"PyTorch {torch.__version__} cannot exchange its flash attention: that needs PyTorch 2.11 or later; "
            "with attune.patch() calls of scaled_dot_product_attention are attune's here too"
        )
    _calls.clear()
    options: dict[str, Any] = {} if precision is None else {"precision": precision}
    attention.register_flash_attention_impl("attune", register_fn=lambda: _Handle(options))
    attention.activate_flash_attention_impl("attune")
    return _calls


class _Handle:
    """What PyTorch holds while attune is active."""

    def __init__(self, options: dict[str, Any]) -> None:
        make_library: Any = torch.library.Library
        self.library: Any = make_library("aten", "IMPL")
        for name, attempt in _ATTEMPTS.items():
            if not hasattr(torch.ops.aten, name):
                continue  # PyTorch 2.11 has none that writes into a tensor
            kernel = _kernel(attempt, torch.library.get_kernel("aten::" + name, _KEY), options)
            self.library.impl(name, kernel, _KEY, with_keyset=True, allow_override=True)

    def remove(self) -> None:
        self.library = None  # which takes its kernels away


def _kernel(attempt: Callable[..., Any], pytorch: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """The kernel of an operator: an attempt with attune, and PyTorch's kernel."""

    def kernel(keys: Any, *args: Any, **named: Any) -> Any:
        if _within.pytorch:  # whose kernel calls another operator of these
            return pytorch.call_boxed(keys, *args, **named)
        q = named["query"] if "query" in named else args[1 if attempt is _into else 0]
        try:
            result, call = attempt(options, *args, **named)
        except (Left, NotImplementedError) as problem:
            _door.record(_calls, "", q, "flash", reason=_door.first_words(problem))
            _within.pytorch = True
            try:
                return pytorch.call_boxed(keys, *args, **named)
            finally:
                _within.pytorch = False
        _door.record(_calls, "", q, "attune", call)
        return result

    return kernel


def _refuse(reason: Optional[str]) -> None:
    if reason is not None:
        raise Left(reason)


# ---- attempts: the arguments and results of PyTorch's operators ----------------------------------
# Each returns the result of its operator, and the call of attune.


def _dense(options: dict[str, Any], query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0,
           is_causal: bool = False, return_debug_mask: bool = False, *, scale: Optional[float] = None,
           ) -> tuple[tuple[Any, ...], Computed]:  # fmt: skip
    """_scaled_dot_product_flash_attention: tensors [batch, heads, rows, head_dim]."""
    _refuse("dropout" if dropout_p != 0 or return_debug_mask else _door.refusal(query, key, value, scale))
    if is_causal and query.shape[2] != key.shape[2]:
        raise Left("a causal mask that is not square")
    common: dict[str, Any] = {"causal": is_causal, "scale": scale, "return_lse": True, **options}
    o, lse = sdpa(query, key, value, **common)
    result = (o, lse, None, None, query.shape[2], key.shape[2], *_unused(query))
    return result, (query, key, value, common)


def _flash(options: dict[str, Any], query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Optional[Tensor],
           cum_seq_k: Optional[Tensor], max_q: int, max_k: int, dropout_p: float, is_causal: bool,
           return_debug_mask: bool, **others: Any) -> tuple[tuple[Any, ...], Computed]:  # fmt: skip
    """_flash_attention_forward: tensors [batch, rows, heads, head_dim], packed [rows, heads, head_dim]."""
    _refuse("dropout" if dropout_p != 0 or return_debug_mask else None)
    o, lse, call = _attend(options, None, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, **others)
    return (o, lse, *_unused(query)), call


def _into(options: dict[str, Any], out: Tensor, query: Tensor, key: Tensor, value: Tensor,
          cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int, max_k: int, dropout_p: float,
          is_causal: bool, return_debug_mask: bool, **others: Any) -> tuple[Tensor, Computed]:  # fmt: skip
    """_flash_attention_forward_no_dropout_inplace, which writes into out."""
    _refuse("dropout" if dropout_p != 0 or return_debug_mask else None)
    return _attend(options, out, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, is_causal, **others)[1:]


def _attend(options: dict[str, Any], out: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor,
            cum_seq_q: Optional[Tensor], cum_seq_k: Optional[Tensor], max_q: int, max_k: int, is_causal: bool, *,
            scale: Optional[float] = None, window_size_left: Optional[int] = None,
            window_size_right: Optional[int] = None, seqused_k: Optional[Tensor] = None,
            alibi_slopes: Optional[Tensor] = None, block_table: Optional[Tensor] = None,
            num_splits: Optional[int] = None) -> tuple[Tensor, Tensor, Computed]:  # fmt: skip
    """(o, lse, call) of tensors with rows before heads. A causal mask ends at the last key, as attune's does."""
    if alibi_slopes is not None or num_splits is not None:
        raise Left("ALiBi" if alibi_slopes is not None else "a number of splits")
    window = tuple(-1 if side is None else side for side in (window_size_left, window_size_right))
    common: dict[str, Any] = {"causal": is_causal, "scale": scale, "window_size": window, "return_lse": True}
    if block_table is not None or seqused_k is not None:
        return _over_cache(common, out, query, key, value, cum_seq_q, max_q, seqused_k, block_table)
    common.update(options)
    if cum_seq_q is None or cum_seq_k is None:
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        _refuse(_door.refusal(q, k, v, scale))
        common["out"] = None if out is None else out.transpose(1, 2)
        o, lse = sdpa(q, k, v, **common)
        return o.transpose(1, 2), lse, (q, k, v, common)
    as_batch = [x.transpose(0, 1)[None] for x in (query, key, value)]
    _refuse(_door.refusal(as_batch[0], as_batch[1], as_batch[2], scale))
    common.update(cu_seqlens_q=cum_seq_q, cu_seqlens_k=cum_seq_k, max_seqlen_q=min(max_q, query.shape[0]),
                  max_seqlen_k=min(max_k, key.shape[0]), out=out)  # fmt: skip
    o, lse = sdpa_varlen(query, key, value, **common)
    return o, lse, (query, key, value, common)


def _over_cache(common: dict[str, Any], out: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor,
                cum_seq_q: Optional[Tensor], max_q: int, lengths: Optional[Tensor], table: Optional[Tensor],
                ) -> tuple[Tensor, Tensor, Computed]:  # fmt: skip
    """As many new queries of each sequence over pages [pages, page_size, kv_heads, head_dim]."""
    if lengths is None or table is None or cum_seq_q is None:
        raise Left("lengths of keys without a page table, or a page table without lengths")
    batch = lengths.shape[0]
    if query.shape[0] != batch * max_q or max_q > _MAX_DECODE_QUERIES:
        raise Left("a prefill over a paged cache")
    if key.shape[1] % 16:
        raise Left(f"pages of {key.shape[1]} keys, no multiple of 16")
    q, k, v = query.view(batch, max_q, *query.shape[1:]).transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    # refusal compares batches, which pages have none of.
    _refuse(_door.refusal(q[:1], k[:1], v[:1], common["scale"]))
    into = None if out is None else out.view(batch, max_q, *query.shape[1:]).transpose(1, 2)
    common.update(lengths=lengths, page_table=table, out=into)
    o, lse = decode(q, k, v, **common)
    rows: Tensor = o.transpose(1, 2).reshape(query.shape)
    return rows, lse.transpose(0, 1).reshape(query.shape[1], query.shape[0]), (q, k, v, common)


def _unused(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The state of the random numbers of dropout, and a mask for debugging: nothing reads them without dropout."""
    return (
        torch.empty((2,), dtype=torch.uint64, device=q.device),
        torch.empty((), dtype=torch.uint64, device=q.device),
        torch.empty((0,), dtype=q.dtype, device=q.device),
    )


_ATTEMPTS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention": _dense,
    "_flash_attention_forward": _flash,
    "_flash_attention_forward_no_dropout_inplace": _into,
}
