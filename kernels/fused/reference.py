"""The right outputs, in float64."""

import numpy as np


def softmax_scale(axes, d):
    return 3 / np.sqrt(d) / (max(axes["q_max"], 1) * max(axes["k_max"], 1))


def attend(s, v):
    """Softmax over the scores, times V; and the log-sum-exp. A row without keys is 0."""
    row_max = s.max(axis=-1, initial=-np.inf, keepdims=True)
    empty = row_max == -np.inf
    p = np.exp(s - np.where(empty, 0, row_max))
    row_sum = np.where(empty, 1, p.sum(axis=-1, keepdims=True))
    lse = np.where(empty, -np.inf, row_max + np.log(row_sum))
    return p / row_sum @ v, lse[..., 0]


def reference(axes, inputs):
    q = inputs["q"].astype(np.float64)
    batch, heads, queries, d = q.shape
    q = q.reshape(batch, axes["kv_heads"], axes["group"], queries, d)
    k = inputs["k"].astype(np.float64)[:, :, None]
    v = inputs["v"].astype(np.float64)[:, :, None]
    s = q @ k.transpose(0, 1, 2, 4, 3) * softmax_scale(axes, d)
    if axes["causal"]:
        last = np.arange(queries)[:, None] + axes["keys"] - queries
        s = np.where(np.arange(axes["keys"])[None, :] <= last, s, -np.inf)
    o, lse = attend(s, v)
    o = o.reshape(batch, heads, queries, d)
    if axes["rows_first"]:
        o = o.transpose(0, 2, 1, 3)
    outputs = {"o": o}
    if axes["lse"]:
        outputs["lse"] = lse.reshape(batch, heads, queries)
    return outputs
