"""The right outputs, in float64."""

import numpy as np


def bounds(axes, inputs, name, sequence):
    """First and last row of a sequence in `queries` or `keys`, and its batch index."""
    offsets = inputs.get("cu_" + name)
    if offsets is None:
        return 0, axes[name], sequence
    return int(offsets[sequence]), int(offsets[sequence + 1]), 0


def heads_first(axes, x):
    """(batch, heads, rows, D), whatever the layout."""
    return x.transpose(0, 2, 1, 3) if axes["rows_first"] else x


def keys_of(axes, inputs, name, sequence):
    """K or V of a sequence, (kv_heads, length, D): packed, paged or padded."""
    x = heads_first(axes, inputs[name])
    first, last, index = bounds(axes, inputs, "keys", sequence)
    length = last - first
    if axes["lengths"]:
        length = min(max(int(inputs["lengths"][sequence]), 0), length)
    if axes["pages"]:
        rows = np.concatenate(list(x[inputs["page_table"][sequence]]), axis=1)
    else:
        rows = x[index, :, first:last]
    descale = inputs["descale_" + name][sequence].astype(np.float64)
    return rows[:, :length].astype(np.float64) * descale[:, None, None]


def visible(axes, queries, keys):
    """Which keys each query of a sequence sees. The last query is at the last key."""
    query = keys - queries + np.arange(queries)[:, None]
    key = np.arange(keys)[None, :]
    seen = np.ones((queries, keys), dtype=bool)
    if axes["causal"]:
        seen &= key <= query
    if axes["left"]:
        seen &= key > query - axes["left"]
    if axes["right"]:
        seen &= key < query + axes["right"]
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
    kv_heads, group = axes["kv_heads"], axes["group"]
    all_q = heads_first(axes, inputs["q"])
    d = all_q.shape[-1]
    sinks = np.full(kv_heads * group, -np.inf)
    if axes["sinks"]:
        sinks = inputs["sinks"].astype(np.float64)
    sinks = sinks.reshape(kv_heads, group, 1, 1)
    o, lse = np.zeros(all_q.shape), np.zeros(all_q.shape[:-1])
    for b in range(axes["batch"]):
        first, last, index = bounds(axes, inputs, "queries", b)
        q = all_q[index, :, first:last].astype(np.float64)
        q = q * inputs["descale_q"][b].astype(np.float64)[:, None, None]
        q = q.reshape(kv_heads, group, last - first, d)
        k, v = keys_of(axes, inputs, "k", b), keys_of(axes, inputs, "v", b)
        s = q @ k[:, None].transpose(0, 1, 3, 2) / np.sqrt(d)
        s = np.where(visible(axes, last - first, k.shape[1]), s, -np.inf)
        row_o, row_lse = attend(s, v[:, None], sinks)
        o[index, :, first:last] = row_o.reshape(kv_heads * group, last - first, d)
        lse[index, :, first:last] = row_lse.reshape(kv_heads * group, last - first)
    outputs = {"o_bf16" if axes["bf16"] else "o": heads_first(axes, o)}
    if axes["lse"]:
        outputs["lse"] = lse
    return outputs
