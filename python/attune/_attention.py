"""attune.sdpa and attune.sdpa_varlen."""

from collections.abc import Sequence
from typing import Any, Literal, Optional, overload

import torch
from torch import Tensor

from attune import _check, _library, _operators
from attune._arguments import Call
from attune._check import Precision, Result, Window
from attune._renamed import REQUIRED, renamed

_attend = _library.attend
_is_compiling = torch.compiler.is_dynamo_compiling


@overload
def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ..., alibi_slopes: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ...,
         return_lse: Literal[False] = ..., out: Optional[Tensor] = ...,
         smooth_k: bool = ..., hadamard: bool = ..., precision: Precision = ..., fallback: bool = ...) -> Tensor: ...  # fmt: skip


@overload
def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ..., alibi_slopes: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ...,
         return_lse: Literal[True], out: Optional[Tensor] = ...,
         smooth_k: bool = ..., hadamard: bool = ..., precision: Precision = ..., fallback: bool = ...) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: Optional[float] = None,
    window_size: Optional[Window] = None,
    sinks: Optional[Tensor] = None,
    softcap: Optional[float] = None,
    alibi_slopes: Optional[Tensor] = None,
    descale: Optional[Sequence[Tensor]] = None,
    return_lse: bool = False,
    out: Optional[Tensor] = None,
    smooth_k: bool = False,
    hadamard: bool = False,
    precision: Precision = "auto",
    fallback: bool = False,
    **old: Any,
) -> Result:
    """softmax(scale * q @ k^T) @ v in 16 bits, or in FP8 if that is a tenth faster, on the current CUDA stream.

    q is [batch, heads, queries, head_dim]; k and v are [batch, kv_heads, keys, head_dim], and
    kv_heads divides heads. FP16 and BF16 tensors with many keys are quantised to E4M3 with one factor
    per head; the output has their dtype. E4M3 tensors come with descale = (of q, of k, of v), float32
    [batch, heads] or [batch, kv_heads], and give FP16, or the dtype of out.

    causal: query i attends to the keys up to i + keys - queries. scale: 1 / sqrt(head_dim) by
    default. window_size: (left, right) keys before and behind the query's own, -1 for no limit, as in
    flash-attn. sinks: float32 [heads], logits without a value. softcap: a score s, scaled, becomes
    softcap * tanh(s / softcap), but not that of a sink; for FP16 and BF16, which are then not
    quantised. alibi_slopes: float32 [heads] or [batch, heads]; slope * abs(i + keys - queries - j) is
    subtracted from the score of query i and key j, which is scaled and capped before, as in
    flash-attn; for FP16 and BF16 as softcap. return_lse: the result is (o, lse), lse float32 [batch, heads, queries].

    smooth_k and hadamard are options of the quantiser of FP16 and BF16: the first subtracts from k
    its mean over the keys, the second rotates q and k. Neither changes the exact result.

    precision, of FP16 and BF16: "fp8" quantises always, "16" never, and "auto" where that is a tenth
    faster or no kernel for 16 bits computes the problem. attune.explain tells what "auto" chooses.

    There is no backward pass. With fallback=True PyTorch computes what attune does not support.
    """
    if old:
        return renamed(sdpa, old, dict(locals()))
    if not _is_compiling():
        try:
            result = _attend(q, k, v, causal, scale, window_size, sinks, descale, return_lse, out, smooth_k, hadamard,
                             None, None, 0, 0, None, None, precision, softcap,
                             alibi_slopes, None, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window_size)
    scale, softcap = _check.factor("scale", scale), _check.factor("softcap", softcap)
    causal, return_lse = _check.flag("causal", causal), _check.flag("return_lse", return_lse)
    smooth_k, hadamard = _check.flag("smooth_k", smooth_k), _check.flag("hadamard", hadamard)
    call = Call(q, k, v, causal, scale, sides, sinks, descale, return_lse, out, smooth_k, hadamard, precision=precision,
                softcap=softcap, alibi_slopes=alibi_slopes)  # fmt: skip
    check_dense(call)
    return _operators.attention(call, fallback)


def check_dense(call: Call) -> None:
    """The checks of sdpa, its window aside."""
    q, k = call.q, call.k
    _check.qkv(q, k, call.v, ("batch", "heads", "rows", "head_dim"))
    if q.dtype == _check.FP8:
        _check.descale(call.descale, "qkv", q, q.shape[0], q.shape[1], k.shape[1])
    else:
        _check.no_descale(call.descale, q)
    _check_options(call, q.shape[0])


@overload
def sdpa_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
         max_seqlen_k: int, *, causal: bool = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ..., alibi_slopes: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ...,
         return_lse: Literal[False] = ..., out: Optional[Tensor] = ...,
         smooth_k: bool = ..., hadamard: bool = ..., precision: Precision = ..., fallback: bool = ...) -> Tensor: ...  # fmt: skip


@overload
def sdpa_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
         max_seqlen_k: int, *, causal: bool = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ..., alibi_slopes: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ...,
         return_lse: Literal[True], out: Optional[Tensor] = ...,
         smooth_k: bool = ..., hadamard: bool = ..., precision: Precision = ..., fallback: bool = ...) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def sdpa_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor = REQUIRED,
    cu_seqlens_k: Tensor = REQUIRED,
    max_seqlen_q: int = REQUIRED,
    max_seqlen_k: int = REQUIRED,
    *,
    causal: bool = False,
    scale: Optional[float] = None,
    window_size: Optional[Window] = None,
    sinks: Optional[Tensor] = None,
    softcap: Optional[float] = None,
    alibi_slopes: Optional[Tensor] = None,
    descale: Optional[Sequence[Tensor]] = None,
    return_lse: bool = False,
    out: Optional[Tensor] = None,
    smooth_k: bool = False,
    hadamard: bool = False,
    precision: Precision = "auto",
    fallback: bool = False,
    **old: Any,
) -> Result:
    """attune.sdpa of sequences of different lengths, packed one behind the other.

    q is [total_queries, heads, head_dim]; k and v are [total_keys, kv_heads, head_dim]. cu_seqlens_q
    and cu_seqlens_k are int32 [batch + 1] on the device: sequence b has the rows of q from
    cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1. max_seqlen_q and max_seqlen_k are the most rows of a
    sequence. descale is float32 [batch, heads] or [batch, kv_heads]; lse is float32
    [heads, total_queries].

    The other arguments are those of attune.sdpa, for each sequence.
    """
    if old:
        return renamed(sdpa_varlen, old, dict(locals()))
    if not _is_compiling():
        try:
            result = _attend(q, k, v, causal, scale, window_size, sinks, descale, return_lse, out, smooth_k, hadamard,
                             cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, None, precision, softcap,
                             alibi_slopes, None, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window_size)
    scale, softcap = _check.factor("scale", scale), _check.factor("softcap", softcap)
    causal, return_lse = _check.flag("causal", causal), _check.flag("return_lse", return_lse)
    smooth_k, hadamard = _check.flag("smooth_k", smooth_k), _check.flag("hadamard", hadamard)
    call = Call(q, k, v, causal, scale, sides, sinks, descale, return_lse, out, smooth_k, hadamard,
                cu_seqlens_q, cu_seqlens_k, _check.whole(max_seqlen_q), _check.whole(max_seqlen_k), precision=precision,
                softcap=softcap, alibi_slopes=alibi_slopes)  # fmt: skip
    check_packed(call)
    return _operators.attention(call, fallback)


def check_packed(call: Call) -> None:
    """The checks of sdpa_varlen, its window aside."""
    q, k = call.q, call.k
    _check.qkv(q, k, call.v, ("rows", "heads", "head_dim"))
    batch = _check.offsets("cu_seqlens_q", call.cu_seqlens_q, None, "max_seqlen_q", call.max_seqlen_q, q, q)
    _check.offsets("cu_seqlens_k", call.cu_seqlens_k, batch, "max_seqlen_k", call.max_seqlen_k, k, q)
    if q.dtype == _check.FP8:
        _check.descale(call.descale, "qkv", q, batch, q.shape[1], k.shape[1])
    else:
        _check.no_descale(call.descale, q)
    _check_options(call, batch)


def _check_options(call: Call, batch: int) -> None:
    if call.tree_mask is not None:
        raise ValueError("tree_mask is given, and lengths is None: the tree of the queries is the end of a cache")
    _check.alibi_slopes(call.alibi_slopes, call.q, batch)
    _check.sinks(call.sinks, call.q)
    _check.options(call.q, call.smooth_k, call.hadamard)
    _check.precision(call.precision, call.q, call.k, call.smooth_k, call.hadamard)
    _check.out(call.out, call.q)
