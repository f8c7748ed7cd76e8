"""Attention by PyTorch: what fallback=True gives, and what tests compare with."""

import torch
import torch.nn.functional as functional


def attention(q, k, v, descale, causal, scale, window_left, window_right, sinks, return_lse, out):
    """The arguments of attune.sdpa, computed without attune."""
    dtype = q.dtype if descale is None else torch.float16
    if descale is not None:
        q, k, v = (x.to(torch.bfloat16) * factor[..., None, None].to(torch.bfloat16) for x, factor in zip((q, k, v), descale))
    plain = window_left < 0 and window_right < 0 and sinks is None and not return_lse
    if plain and not (causal and q.shape[2] != k.shape[2]):  # PyTorch aligns the mask to the first key
        o = _PYTORCH(q, k, v, is_causal=bool(causal), scale=scale, enable_gqa=q.shape[1] != k.shape[1])
        lse = None
    else:
        o, lse = explicit(q, k, v, causal, scale, window_left, window_right, sinks)
    if out is None:
        out = o.to(dtype)
    else:
        out.copy_(o)
    return (out, lse) if return_lse else out


# attune.patch replaces the function of the module.
_PYTORCH = functional.scaled_dot_product_attention


def explicit(q, k, v, causal, scale, window_left, window_right, sinks):
    """(o, lse) in float32 with all scores in memory."""
    queries, keys, head_dim = q.shape[2], k.shape[2], q.shape[3]
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.float() @ k.transpose(-2, -1) * (head_dim**-0.5 if scale is None else scale)
    own = torch.arange(queries, device=q.device)[:, None] + keys - queries
    key = torch.arange(keys, device=q.device)
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if causal:
        hidden |= key > own
    if window_left >= 0:
        hidden |= key < own - window_left
    if window_right >= 0:
        hidden |= key > own + window_right
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:  # a key without a value
        column = sinks.view(1, -1, 1, 1).expand(q.shape[0], -1, queries, 1)
        scores = torch.cat([scores, column.float()], dim=-1)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - torch.where(lse == -torch.inf, 0.0, lse)[..., None])
    return weights[..., :keys] @ v, lse
