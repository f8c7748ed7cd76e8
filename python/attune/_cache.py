"""attune.decode, attune.prefill and attune.append: a cache of keys and values in E4M3, FP16 or BF16."""

from collections.abc import Sequence
from typing import Any, Literal, Optional, overload

import torch
from torch import Tensor

from attune import _arguments, _check, _library, _operators, _reference
from attune._arguments import Call
from attune._check import Precision, Result, Window
from attune._renamed import renamed

_attend, _append = _library.attend, _library.append
_is_compiling = torch.compiler.is_dynamo_compiling


@overload
def decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, *, page_table: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ..., causal: Optional[bool] = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ...,
         alibi_slopes: Optional[Tensor] = ..., tree_mask: Optional[Tensor] = ...,
         return_lse: Literal[False] = ..., out: Optional[Tensor] = ..., precision: Precision = ...,
         fallback: bool = ...,
         ) -> Tensor: ...  # fmt: skip


@overload
def decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, *, page_table: Optional[Tensor] = ...,
         descale: Optional[Sequence[Tensor]] = ..., causal: Optional[bool] = ..., scale: Optional[float] = ..., window_size: Optional[Window] = ...,
         sinks: Optional[Tensor] = ..., softcap: Optional[float] = ...,
         alibi_slopes: Optional[Tensor] = ..., tree_mask: Optional[Tensor] = ...,
         return_lse: Literal[True], out: Optional[Tensor] = ..., precision: Precision = ...,
         fallback: bool = ...,
         ) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    lengths: Tensor,
    *,
    page_table: Optional[Tensor] = None,
    descale: Optional[Sequence[Tensor]] = None,
    causal: Optional[bool] = None,
    scale: Optional[float] = None,
    window_size: Optional[Window] = None,
    sinks: Optional[Tensor] = None,
    softcap: Optional[float] = None,
    alibi_slopes: Optional[Tensor] = None,
    tree_mask: Optional[Tensor] = None,
    return_lse: bool = False,
    out: Optional[Tensor] = None,
    precision: Precision = "auto",
    fallback: bool = False,
    **old: Any,
) -> Result:
    """Attention of the last queries of each sequence over its cache, on the current CUDA stream.

    q is [batch, heads, queries, head_dim], FP16 or BF16; one query, or a few of speculative
    decoding, which are the last of the sequence. The caches are E4M3, or of the dtype of q, [batch,
    kv_heads, capacity, head_dim] or, with a page table, [pages, kv_heads, page_size, head_dim] with a
    multiple of 16 keys on a page. lengths is int32 [batch]: the keys of each sequence, those of the
    queries included. page_table is int32 [batch, max_pages]. Caches in E4M3 come with descale, (of k,
    of v), float32 [batch, kv_heads]; a q in E4M3 with all three factors.

    tree_mask, for the tokens of a tree in speculative decoding, is int64 or uint64 [batch, queries]: bit
    t of row i says whether the row sees the key of query t, one of the last of the sequence. It sees
    all keys before. A tree has at most 64 queries in FP16 or BF16 over a cache of the same dtype, and
    no window; it replaces the causal mask, which is the default without one.

    The output has the dtype of q. The other arguments are those of attune.sdpa. A cache in 16 bits is
    read as it is; precision="fp8" quantises it in each call.
    """
    if old:
        return renamed(decode, old, dict(locals()))
    if causal is None:
        causal = tree_mask is None
    if not _is_compiling() and lengths is not None:  # without lengths a call is one of sdpa
        try:
            result = _attend(q, k_cache, v_cache, causal, scale, window_size, sinks, descale, return_lse, out, False, False,
                             None, None, 0, 0, lengths, page_table, precision, softcap,
                             alibi_slopes, tree_mask, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window_size)
    scale, softcap = _check.factor("scale", scale), _check.factor("softcap", softcap)
    causal, return_lse = _check.flag("causal", causal), _check.flag("return_lse", return_lse)
    call = Call(q, k_cache, v_cache, causal, scale, sides, sinks, descale, return_lse, out,
                lengths=lengths, page_table=page_table, precision=precision,
                softcap=softcap, alibi_slopes=alibi_slopes, tree_mask=tree_mask)  # fmt: skip
    check_cached(call)
    return _operators.attention(call, fallback)


def check_cached(call: Call) -> None:
    """The checks of decode, its window aside."""
    q = call.q
    _check.tensor("q", q, ("batch", "heads", "queries", "head_dim"))
    _check_queries(q)
    _check_cache_call(call, q.shape[0])


def check_prefilled(call: Call) -> None:
    """The checks of prefill, its window aside."""
    q = call.q
    _check.tensor("q", q, ("rows", "heads", "head_dim"))
    _check_queries(q)
    batch = _check.offsets("cu_seqlens_q", call.cu_seqlens_q, None, "max_seqlen_q", call.max_seqlen_q, q, q)
    _check_cache_call(call, batch)


def _check_queries(q: Tensor) -> None:
    if q.dtype not in _check.HALVES and q.dtype != _check.FP8:
        raise TypeError(f"q is {q.dtype}, not float16, bfloat16 or float8_e4m3fn")


def _check_cache_call(call: Call, batch: int) -> None:
    q, cache = call.q, call.k
    _check_caches(q, batch, cache, call.v, call.lengths, call.page_table, "q", (_check.FP8, q.dtype))
    _check.heads(q, cache)
    if cache.dtype == _check.FP8:
        names = "qkv" if q.dtype == _check.FP8 else "kv"
        _check.descale(call.descale, names, q, batch, q.shape[1], cache.shape[1])
    else:
        _check.no_descale(call.descale, cache, "k_cache")
    _check.alibi_slopes(call.alibi_slopes, q, batch)
    queries = q.shape[2] if call.cu_seqlens_q is None else call.max_seqlen_q
    _check.tree_mask(call.tree_mask, q, queries, call.causal, call.window_size)
    _check.sinks(call.sinks, q)
    _check.precision(call.precision, q, cache)
    _check.out(call.out, q)


@overload
def prefill(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, cu_seqlens_q: Tensor, max_seqlen_q: int, *,
         page_table: Optional[Tensor] = ..., descale: Optional[Sequence[Tensor]] = ..., causal: Optional[bool] = ..., scale: Optional[float] = ...,
         window_size: Optional[Window] = ..., sinks: Optional[Tensor] = ..., softcap: Optional[float] = ...,
         alibi_slopes: Optional[Tensor] = ..., tree_mask: Optional[Tensor] = ...,
         return_lse: Literal[False] = ..., out: Optional[Tensor] = ...,
         precision: Precision = ..., fallback: bool = ...) -> Tensor: ...  # fmt: skip


@overload
def prefill(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, cu_seqlens_q: Tensor, max_seqlen_q: int, *,
         page_table: Optional[Tensor] = ..., descale: Optional[Sequence[Tensor]] = ..., causal: Optional[bool] = ..., scale: Optional[float] = ...,
         window_size: Optional[Window] = ..., sinks: Optional[Tensor] = ..., softcap: Optional[float] = ...,
         alibi_slopes: Optional[Tensor] = ..., tree_mask: Optional[Tensor] = ...,
         return_lse: Literal[True], out: Optional[Tensor] = ...,
         precision: Precision = ..., fallback: bool = ...) -> tuple[Tensor, Tensor]: ...  # fmt: skip


def prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    lengths: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    *,
    page_table: Optional[Tensor] = None,
    descale: Optional[Sequence[Tensor]] = None,
    causal: Optional[bool] = None,
    scale: Optional[float] = None,
    window_size: Optional[Window] = None,
    sinks: Optional[Tensor] = None,
    softcap: Optional[float] = None,
    alibi_slopes: Optional[Tensor] = None,
    tree_mask: Optional[Tensor] = None,
    return_lse: bool = False,
    out: Optional[Tensor] = None,
    precision: Precision = "auto",
    fallback: bool = False,
) -> Result:
    """Attention of packed queries over the caches of their sequences, on the current CUDA stream: chunked prefill.

    q is [total_queries, heads, head_dim], FP16, BF16 or E4M3. cu_seqlens_q is int32 [batch + 1]:
    sequence b has the rows of q from cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1, at most max_seqlen_q.
    They are the last of its lengths[b] keys, which the caches have already: with causal, the default
    without a tree_mask, each sees the keys up to its own. A sequence may have one query, that of a decode step, or none.

    The caches, lengths, page_table and descale are those of attune.decode, and tree_mask too, but of
    [total_queries]. The other arguments are those of attune.sdpa. lse is float32 [heads, total_queries].
    """
    if causal is None:
        causal = tree_mask is None
    if not _is_compiling() and lengths is not None and cu_seqlens_q is not None:
        try:
            result = _attend(q, k_cache, v_cache, causal, scale, window_size, sinks, descale, return_lse, out, False, False,
                             cu_seqlens_q, None, max_seqlen_q, 0, lengths, page_table, precision, softcap,
                             alibi_slopes, tree_mask, False)  # fmt: skip
            if result is not None:
                return result
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    sides = _check.window(window_size)
    scale, softcap = _check.factor("scale", scale), _check.factor("softcap", softcap)
    causal, return_lse = _check.flag("causal", causal), _check.flag("return_lse", return_lse)
    call = Call(q, k_cache, v_cache, causal, scale, sides, sinks, descale, return_lse, out, cu_seqlens_q=cu_seqlens_q,
                max_seqlen_q=_check.whole(max_seqlen_q), lengths=lengths, page_table=page_table, precision=precision,
                softcap=softcap, alibi_slopes=alibi_slopes, tree_mask=tree_mask)  # fmt: skip
    check_prefilled(call)
    return _operators.attention(call, fallback)


def append(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    lengths: Tensor,
    *,
    page_table: Optional[Tensor] = None,
    descale: Sequence[Tensor],
    fallback: bool = False,
) -> None:
    """Writes new rows of k and v to the caches, in E4M3, on the current CUDA stream.

    k and v are [batch, kv_heads, rows, head_dim], FP16 or BF16. Row i of sequence b goes to position
    lengths[b] + i of its cache; lengths is not changed. A row behind the capacity or on a page that
    the cache does not have is dropped, and so are the rows of a sequence with a negative length.
    descale is (of k, of v), float32 [batch, kv_heads]; elements over 448 * descale saturate. Caches,
    lengths and page_table are those of attune.decode.
    """
    if not _is_compiling() and isinstance(descale, (tuple, list)) and len(descale) == 2:
        try:
            if _append(k, v, k_cache, v_cache, lengths, page_table, *descale, False):
                return
        except NotImplementedError:
            pass  # said below, or computed by PyTorch
    _check_rows(k, v)
    _check_caches(k, k.shape[0], k_cache, v_cache, lengths, page_table, "k", (_check.FP8,))
    if k.shape[1] != k_cache.shape[1]:
        raise ValueError(f"k has {k.shape[1]} heads, and k_cache has {k_cache.shape[1]}")
    _check.descale(descale, "kv", k, k.shape[0], k.shape[1], k.shape[1])
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not x.is_contiguous():
            raise ValueError(f"{name} has strides {list(x.stride())}: it must be contiguous")
    fallback = _check.flag("fallback", fallback)
    if not k.is_cuda and not fallback:
        raise NotImplementedError(
            f"k is on {k.device}: attune runs on CUDA devices; fallback=True computes it by PyTorch"
        )
    if _arguments.is_transformed(k, v, *descale):
        raise NotImplementedError("torch.func or forward-mode differentiation transforms the call of append, also with fallback")
    run = _append_op if _arguments.is_traced(k, v, k_cache, v_cache) else _run_append
    run(k, v, k_cache, v_cache, lengths, page_table, descale[0], descale[1], fallback)


def _check_rows(k: Tensor, v: Tensor) -> None:
    for name, x in (("k", k), ("v", v)):
        _check.tensor(name, x, ("batch", "kv_heads", "rows", "head_dim"))
        if x.dtype not in _check.HALVES:
            raise TypeError(f"{name} is {x.dtype}, not float16 or bfloat16")
    if k.dtype != v.dtype:
        raise TypeError(f"v is {v.dtype}, and k is {k.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"k is {list(k.shape)}, and v is {list(v.shape)}")
    _check.beside("v", v, "k", k)


def _check_caches(q: Tensor, batch: int, k_cache: Tensor, v_cache: Tensor, lengths: Optional[Tensor],
                  page_table: Optional[Tensor], name: str, dtypes: tuple[torch.dtype, ...]) -> None:  # fmt: skip
    first = "batch" if page_table is None else "pages"
    third = "capacity" if page_table is None else "page_size"
    for cache_name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check.tensor(cache_name, x, (first, "kv_heads", third, "head_dim"))
        if x.dtype not in dtypes:
            wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dict.fromkeys(dtypes))
            raise TypeError(f"{cache_name} is {x.dtype}, not {wanted}")
        _check.beside(cache_name, x, name, q)
        _check.plain(cache_name, x)
        if x.shape[3] != q.shape[-1]:
            raise ValueError(f"{cache_name} is {list(x.shape)}, and {name} is {list(q.shape)}: head_dim differs")
        if page_table is None and x.shape[0] != batch:
            sequences = f"{name} is {list(q.shape)}" if q.dim() == 4 else f"cu_seqlens_q has {batch} sequences"
            raise ValueError(f"{cache_name} is {list(x.shape)}, and {sequences}: batch differs")
        if page_table is not None:
            _check.page_size(cache_name, x)
    if k_cache.dtype != v_cache.dtype:
        raise TypeError(f"v_cache is {v_cache.dtype}, and k_cache is {k_cache.dtype}")
    if k_cache.shape != v_cache.shape:
        raise ValueError(f"k_cache is {list(k_cache.shape)}, and v_cache is {list(v_cache.shape)}")
    _check.array("lengths", lengths, torch.int32, (batch,), q)
    if page_table is not None:
        _check.array("page_table", page_table, torch.int32, (batch, None), q)


def _run_append(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, page_table: Optional[Tensor],
                descale_k: Tensor, descale_v: Tensor, fallback: bool) -> None:  # fmt: skip
    if k.numel() == 0 or k_cache.numel() == 0 or (page_table is not None and page_table.numel() == 0):
        return
    _check_apart(k, v, k_cache, v_cache, lengths, page_table, descale_k, descale_v)
    try:
        if not k.is_cuda:
            raise NotImplementedError(f"k is on {k.device}")
        _launch_append(k, v, k_cache, v_cache, lengths, page_table, descale_k, descale_v)
    except NotImplementedError:
        if not fallback:
            raise
        _reference.append(k, v, k_cache, v_cache, lengths, page_table, descale_k, descale_v)


def _check_apart(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, *small: Optional[Tensor]) -> None:
    """Nothing that is read lies in a cache, and no cache in the other."""
    if _check.overlap(k_cache, v_cache):
        raise ValueError("k_cache overlaps v_cache in memory: the rows of v would be written over those of k")
    names = ("k", "v", "lengths", "page_table", "descale", "descale")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check.apart(name, cache, tuple(zip(names, (k, v, *small))))


def _launch_append(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor,
                   page_table: Optional[Tensor], descale_k: Tensor, descale_v: Tensor) -> None:  # fmt: skip
    small = [x if x is None else x.contiguous().resolve_neg() for x in (lengths, page_table, descale_k, descale_v)]
    k, v = k.resolve_neg(), v.resolve_neg()
    library = _library.load_for_launch()
    with torch.cuda.device(k.device):
        if library.append(k, v, k_cache, v_cache, *small, True) is None:
            # New rows are few; a cache is contiguous, so that only they can lie at a wrong place.
            k, v = (x.clone(memory_format=torch.contiguous_format) for x in (k, v))
            if library.append(k, v, k_cache, v_cache, *small, True) is None:
                raise ValueError(
                    "k_cache and v_cache must lie at multiples of 16 bytes, and k_cache must not require a gradient"
                )


_append_op = torch.library.custom_op("attune::append", _run_append, mutates_args=("k_cache", "v_cache"))


@_append_op.register_fake
def _(*arguments: object) -> None:
    return None
