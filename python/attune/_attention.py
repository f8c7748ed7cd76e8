"""attune.sdpa and attune.sdpa_varlen."""

import torch

from attune import _check, _library, _operators

_attend = _library.attend
_is_compiling = torch.compiler.is_dynamo_compiling


def sdpa(
    q,
    k,
    v,
    *,
    causal=False,
    scale=None,
    window=None,
    sinks=None,
    descale=None,
    return_lse=False,
    out=None,
    smooth_k=False,
    hadamard=False,
    fallback=False,
):
    """softmax(scale * q @ k^T) @ v in FP8, or in 16 bits if keys are few, on the current CUDA stream.

    q is [batch, heads, queries, head_dim]; k and v are [batch, kv_heads, keys, head_dim], and
    kv_heads divides heads. FP16 and BF16 tensors with many keys are quantised to E4M3 with one factor
    per head; the output has their dtype. E4M3 tensors come with descale = (of q, of k, of v), float32
    [batch, heads] or [batch, kv_heads], and give FP16, or the dtype of out.

    causal: query i attends to the keys up to i + keys - queries. scale: 1 / sqrt(head_dim) by
    default. window: (left, right) keys beside the query's own, None for no limit. sinks: float32
    [heads], logits without a value. return_lse: the result is (o, lse), lse float32
    [batch, heads, queries].

    smooth_k and hadamard are options of the quantiser of FP16 and BF16: the first subtracts from k
    its mean over the keys, the second rotates q and k. Neither changes the exact result.

    There is no backward pass. With fallback=True PyTorch computes what attune does not support.
    """
    if not _is_compiling():
        try:
            result = _attend(q, k, v, causal, scale, window, sinks, descale, return_lse, out, smooth_k, hadamard,
                             None, None, 0, 0, None, None, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window)
    _check.qkv(q, k, v, ("batch", "heads", "rows", "head_dim"))
    if q.dtype == _check.FP8:
        _check.descale(descale, "qkv", q, q.shape[0], q.shape[1], k.shape[1])
    else:
        _check.no_descale(descale, q)
    _check_options(q, scale, sinks, out, smooth_k, hadamard)
    call = _operators.Call(q, k, v, causal, scale, sides, sinks, descale, return_lse, out, smooth_k, hadamard)
    return _operators.attention(call, fallback)


def sdpa_varlen(
    q,
    k,
    v,
    cu_queries,
    cu_keys,
    max_queries,
    max_keys,
    *,
    causal=False,
    scale=None,
    window=None,
    sinks=None,
    descale=None,
    return_lse=False,
    out=None,
    smooth_k=False,
    hadamard=False,
    fallback=False,
):
    """attune.sdpa of sequences of different lengths, packed one behind the other.

    q is [total_queries, heads, head_dim]; k and v are [total_keys, kv_heads, head_dim]. cu_queries
    and cu_keys are int32 [batch + 1] on the device: sequence b has the rows from cu_queries[b] to
    cu_queries[b + 1] - 1. max_queries and max_keys are the most rows of a sequence. descale is
    float32 [batch, heads] or [batch, kv_heads]; lse is float32 [heads, total_queries].

    The other arguments are those of attune.sdpa, for each sequence.
    """
    if not _is_compiling():
        try:
            result = _attend(q, k, v, causal, scale, window, sinks, descale, return_lse, out, smooth_k, hadamard,
                             cu_queries, cu_keys, max_queries, max_keys, None, None, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window)
    _check.qkv(q, k, v, ("rows", "heads", "head_dim"))
    _check_packing(q, k, cu_queries, cu_keys, max_queries, max_keys)
    if q.dtype == _check.FP8:
        _check.descale(descale, "qkv", q, cu_queries.shape[0] - 1, q.shape[1], k.shape[1])
    else:
        _check.no_descale(descale, q)
    _check_options(q, scale, sinks, out, smooth_k, hadamard)
    call = _operators.Call(q, k, v, causal, scale, sides, sinks, descale, return_lse, out, smooth_k, hadamard,
                           cu_queries, cu_keys, max_queries, max_keys)  # fmt: skip
    return _operators.attention(call, fallback)


def _check_packing(q, k, cu_queries, cu_keys, max_queries, max_keys):
    _check.array("cu_queries", cu_queries, torch.int32, (None,), q)
    if cu_queries.shape[0] < 2:
        raise ValueError(f"cu_queries has {cu_queries.shape[0]} elements, not batch + 1, which is 2 at least")
    _check.array("cu_keys", cu_keys, torch.int32, (cu_queries.shape[0],), q)
    for name, value, tensor in (("max_queries", max_queries, q), ("max_keys", max_keys, k)):
        if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
            raise TypeError(f"{name} is a {type(value).__name__}, not an int")
        if value < 0 or value > tensor.shape[0]:
            raise ValueError(f"{name} is {value}: it must be from 0 to {tensor.shape[0]}, the rows of all sequences")


def _check_options(q, scale, sinks, out, smooth_k, hadamard):
    _check.scale(scale)
    _check.sinks(sinks, q)
    _check.options(q, smooth_k, hadamard)
    _check.out(out, q)
