"""The right outputs, in float64."""

import numpy as np


def queries_of(axes, inputs):
    """Q, (batch, heads, queries, D)."""
    if "q" in inputs:
        return inputs["q"].astype(np.float64) * inputs["descale_q"].astype(np.float64)[:, :, None, None]
    q = inputs["q_bf16" if axes["q_bf16"] else "q_fp16"].astype(np.float64)
    if axes["q_rows_first"]:
        batch, heads, queries, d = q.shape
        q = q.reshape(batch, queries, heads, d).transpose(0, 2, 1, 3)
    return q


def keys_of(axes, inputs, name, sequence, length):
    """K or V of the first `length` keys of a sequence, (kv_heads, length, D): paged or dense."""
    if not axes["pages"]:
        rows = inputs[name][sequence]
    else:
        pages = inputs[name][inputs["page_table"][sequence]]  # (max_pages, kv_heads, page_size, D)
        rows = np.concatenate(list(pages), axis=1)
    descale = inputs["descale_" + name][sequence].astype(np.float64)
    return rows[:, :length].astype(np.float64) * descale[:, None, None]


def visible(axes, length):
    """Which keys each query of a sequence sees. The last query is at the last key."""
    query = length - axes["queries"] + np.arange(axes["queries"])[:, None]
    key = np.arange(length)[None, :]
    seen = np.ones((axes["queries"], length), dtype=bool)
    if axes["causal"]:
        seen &= key <= query
    if axes["window"]:
        seen &= key > query - axes["window"]
    return seen


def attend(s, v, sinks):
    """Softmax over the scores and the sink, times V; and the log-sum-exp of both."""
    row_max = s.max(axis=-1, initial=-np.inf, keepdims=True)
    empty = row_max == -np.inf
    row_max = np.where(empty, 0, np.maximum(row_max, sinks))
    p = np.exp(s - row_max)
    row_sum = p.sum(axis=-1, keepdims=True) + np.exp(sinks - row_max)
    row_sum = np.where(empty, 1, row_sum)
    lse = np.where(empty, -np.inf, row_max + np.log(row_sum))
    return p / row_sum @ v, lse[..., 0]


def reference(axes, inputs):
    batch, kv_heads, group, queries = (axes[x] for x in ("batch", "kv_heads", "group", "queries"))
    q = queries_of(axes, inputs)
    shape, d = q.shape, q.shape[-1]
    q = q.reshape(batch, kv_heads, group, queries, d)
    sinks = np.full(kv_heads * group, -np.inf)
    if axes["sinks"]:
        sinks = inputs["sinks"].astype(np.float64)
    sinks = sinks.reshape(kv_heads, group, 1, 1)
    o, lse = np.zeros(q.shape), np.zeros(q.shape[:-1])
    for b in range(batch):
        length = axes["keys"]
        if axes["lengths"]:
            length = min(max(int(inputs["lengths"][b]), 0), length)
        k = keys_of(axes, inputs, "k", b, length)
        v = keys_of(axes, inputs, "v", b, length)
        s = q[b] @ k[:, None].transpose(0, 1, 3, 2) / np.sqrt(d)
        s = np.where(visible(axes, length), s, -np.inf)
        o[b], lse[b] = attend(s, v[:, None], sinks)
    outputs = {"o_bf16" if axes["bf16"] else "o": o.reshape(shape)}
    if axes["lse"]:
        outputs["lse"] = lse.reshape(shape[:-1])
    return outputs
