"""Attention by PyTorch: what fallback=True gives, and what tests compare with."""

from collections.abc import Sequence
from typing import Optional

import torch
import torch.nn.functional as functional
from torch import Tensor

from attune._arguments import Call
from attune._check import Result

# attune.patch replaces the function of the module.
PYTORCH = functional.scaled_dot_product_attention


def attention(call: Call) -> Result:
    """A call of attune.sdpa, sdpa_varlen or decode, computed without attune."""
    lse: Optional[Tensor]
    dtype = call.q.dtype if call.q.dtype.itemsize > 1 else torch.float16
    if call.cu_seqlens_q is not None:
        o, lse = _packed(call)
    elif call.lengths is not None or not _is_plain(call):
        k, v = _gathered(call)
        q, k, v = _dequantised(call.q, k, v, call.descale)
        o, lse = explicit(q, k, v, call.causal, call.scale, *call.window_size, call.sinks, call.lengths)
    else:
        q, k, v = _dequantised(call.q, call.k, call.v, call.descale)
        lse = None
        o = PYTORCH(q, k, v, is_causal=bool(call.causal), scale=call.scale, enable_gqa=q.shape[1] != k.shape[1])
    out = o.to(dtype) if call.out is None else call.out.copy_(o)
    return out if lse is None or not call.return_lse else (out, lse)


def _is_plain(call: Call) -> bool:
    """Whether PyTorch's function computes it; it aligns a causal mask to the first key."""
    square = call.q.shape[2] == call.k.shape[2]
    return max(call.window_size) < 0 and call.sinks is None and not call.return_lse and (square or not call.causal)


def _dequantised(q: Tensor, k: Tensor, v: Tensor, descale: Optional[Sequence[Tensor]]) -> Sequence[Tensor]:
    """The values of E4M3 tensors; a q beside a cache may have none to be computed."""
    if descale is None:
        return q, k, v
    factors = (None, *descale)[-3:]
    return [x if factor is None else x.float() * factor[..., None, None] for x, factor in zip((q, k, v), factors)]


def _gathered(call: Call) -> tuple[Tensor, Tensor]:
    """k and v as [batch, kv_heads, keys, head_dim], from their pages if they have any."""
    if call.page_table is None:
        return call.k, call.v
    table = call.page_table.long().clamp(min=0, max=call.k.shape[0] - 1)
    batch, pages = table.shape

    def gather(cache: Tensor) -> Tensor:  # indexing is not for 8-bit floats everywhere
        rows = (cache.view(torch.uint8) if cache.dtype.itemsize == 1 else cache)[table].transpose(1, 2)
        return rows.reshape(batch, cache.shape[1], pages * cache.shape[2], cache.shape[3]).view(cache.dtype)

    return gather(call.k), gather(call.v)


def _packed(call: Call) -> tuple[Tensor, Tensor]:
    """Each sequence by itself."""
    o = torch.zeros(call.q.shape, dtype=torch.float32, device=call.q.device)
    lse = torch.full((call.q.shape[1], call.q.shape[0]), -torch.inf, device=call.q.device)
    assert call.cu_seqlens_q is not None and call.cu_seqlens_k is not None
    queries, keys = call.cu_seqlens_q.tolist(), call.cu_seqlens_k.tolist()
    for b in range(len(queries) - 1):
        rows, columns = slice(queries[b], queries[b + 1]), slice(keys[b], keys[b + 1])
        q, k, v = (x.transpose(0, 1)[None] for x in (call.q[rows], call.k[columns], call.v[columns]))
        q, k, v = _dequantised(q, k, v, None if call.descale is None else [x[b : b + 1] for x in call.descale])
        part, part_lse = explicit(q, k, v, call.causal, call.scale, *call.window_size, call.sinks)
        o[rows], lse[:, rows] = part[0].transpose(0, 1), part_lse[0]
    return o, lse


def _hidden(queries: int, keys: int, causal: bool, window_left: int, window_right: int, lengths: Optional[Tensor],
            device: torch.device) -> Tensor:  # fmt: skip
    """[batch or 1, queries, keys]: the keys that a query does not see. The last query is at the last key."""
    lengths = torch.tensor([keys], device=device) if lengths is None else lengths.long().clamp(0, keys)
    own = torch.arange(queries, device=device)[None, :, None] + (lengths - queries)[:, None, None]
    key = torch.arange(keys, device=device)
    hidden = (key >= lengths[:, None, None]).expand(-1, queries, -1).clone()
    if causal:
        hidden |= key > own
    if window_left >= 0:
        hidden |= key < own - window_left
    if window_right >= 0:
        hidden |= key > own + window_right
    return hidden


def explicit(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: Optional[float], window_left: int,
             window_right: int, sinks: Optional[Tensor], lengths: Optional[Tensor] = None,
             ) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(o, lse) in float32 with all scores in memory."""
    queries, keys, head_dim = q.shape[2], k.shape[2], q.shape[3]
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.float() @ k.transpose(-2, -1) * (head_dim**-0.5 if scale is None else scale)
    hidden = _hidden(queries, keys, causal, window_left, window_right, lengths, q.device)[:, None]
    v = torch.where(hidden.all(dim=2)[..., None], 0.0, v)  # NaN behind the last key has no effect
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:  # a key without a value
        column = sinks.view(1, -1, 1, 1).expand(q.shape[0], -1, queries, 1)
        scores = torch.cat([scores, column.float()], dim=-1)
    lse = torch.logsumexp(scores, dim=-1).masked_fill(hidden.all(dim=-1), -torch.inf)
    weights = torch.exp(scores - torch.where(lse == -torch.inf, 0.0, lse)[..., None])
    weights = weights.masked_fill((lse == -torch.inf)[..., None], 0.0)
    return weights[..., :keys] @ v, lse


def append(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, page_table: Optional[Tensor],
           descale_k: Tensor, descale_v: Tensor) -> None:  # fmt: skip
    """attune.append, with the arithmetic of kernels/quantize/append."""
    batch, heads, rows, head_dim = k.shape
    page_size = k_cache.shape[2]
    position = lengths.long()[:, None] + torch.arange(rows, device=k.device)
    page, place = position // page_size, position % page_size
    kept = lengths.ge(0)[:, None].expand_as(position)  # a negative length marks an unused slot
    if page_table is None:
        kept = kept & (position < page_size)
        page = torch.arange(batch, device=k.device)[:, None].expand(-1, rows)
    else:
        kept = kept & (page < page_table.shape[1])
        page = page_table.long().gather(1, page.clamp(0, page_table.shape[1] - 1))
        kept = kept & (page >= 0) & (page < k_cache.shape[0])
    for x, cache, descale in ((k, k_cache, descale_k), (v, v_cache, descale_v)):
        codes = (x.float() * (1 / descale)[..., None, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        codes = codes.view(torch.uint8).transpose(1, 2)[kept]
        cache.view(torch.uint8)[page[kept], :, place[kept]] = codes
