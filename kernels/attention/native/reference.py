"""The right outputs, in float64."""

import numpy as np


def softmax_scale(axes, d):
    return 1.5 * axes["spread"] / np.sqrt(d) / (max(axes["q_max"], 1) * max(axes["k_max"], 1))


def attend(s, v):
    """Softmax over the scores, times V; and the log-sum-exp. A row without keys is 0."""
    row_max = s.max(axis=-1, initial=-np.inf, keepdims=True)
    empty = row_max == -np.inf
    p = np.exp(s - np.where(empty, 0, row_max))
    row_sum = np.where(empty, 1, p.sum(axis=-1, keepdims=True))
    lse = np.where(empty, -np.inf, row_max + np.log(row_sum))
    return p / row_sum @ v, lse[..., 0]


def load(axes, inputs, name):
    """A tensor as (batch, heads, rows, D). With an FP16 output its bits are FP16."""
    x = inputs[name]
    if "o" in inputs:
        x = (x.view(np.uint32) >> 16).astype(np.uint16).view(np.float16)
    x = x.astype(np.float64)
    return x.transpose(0, 2, 1, 3) if axes["rows_first"] else x


def reference(axes, inputs):
    q, k, v = (load(axes, inputs, name) for name in ("q", "k", "v"))
    batch, heads, queries, d = q.shape
    q = q.reshape(batch, axes["kv_heads"], axes["group"], queries, d)
    s = q @ k[:, :, None].transpose(0, 1, 2, 4, 3) * softmax_scale(axes, d)
    if axes["causal"]:
        last = np.arange(queries)[:, None] + axes["keys"] - queries
        s = np.where(np.arange(axes["keys"])[None, :] <= last, s, -np.inf)
    o, lse = attend(s, v[:, :, None])
    o = o.reshape(batch, heads, queries, d)
    if axes["rows_first"]:
        o = o.transpose(0, 2, 1, 3)
    outputs = {"o" if "o" in inputs else "o_bf16": o}
    if axes["lse"]:
        outputs["lse"] = lse.reshape(batch, heads, queries)
    return outputs
