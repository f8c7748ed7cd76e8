"""The right outputs, in float64."""

import numpy as np


def softmax_scale(axes, d):
    return 1.5 / np.sqrt(d) / (max(axes["q_max"], 1) * max(axes["k_max"], 1))


def attend(s, v):
    """Softmax over the scores, times V; and the log-sum-exp. A row without keys is 0."""
    row_max = s.max(axis=-1, initial=-np.inf, keepdims=True)
    empty = row_max == -np.inf
    p = np.exp(s - np.where(empty, 0, row_max))
    row_sum = np.where(empty, 1, p.sum(axis=-1, keepdims=True))
    lse = np.where(empty, -np.inf, row_max + np.log(row_sum))
    return p / row_sum @ v, lse[..., 0]


def load_q(axes, inputs):
    """Q as (batch, kv_heads, group, queries, D)."""
    q = inputs["q"]
    if axes["q_fp16"]:
        q = (q.view(np.uint32) >> 16).astype(np.uint16).view(np.float16)
    return q.astype(np.float64).reshape(axes["batch"], axes["kv_heads"], axes["group"], axes["queries"], -1)


def load_kv(axes, inputs, name):
    """K or V as (batch, kv_heads, 1, keys, D), times its factors."""
    x = inputs[name].astype(np.float64)
    x = x.reshape(axes["batch"], axes["kv_heads"], 1, axes["keys"], -1)
    return x * inputs["descale_" + name].astype(np.float64)[:, :, None, None, None]


def reference(axes, inputs):
    q, k, v = load_q(axes, inputs), load_kv(axes, inputs, "k"), load_kv(axes, inputs, "v")
    queries, d = axes["queries"], q.shape[-1]
    s = q @ k.transpose(0, 1, 2, 4, 3) * softmax_scale(axes, d)
    if axes["causal"]:
        last = np.arange(queries)[:, None] + axes["keys"] - queries
        s = np.where(np.arange(axes["keys"])[None, :] <= last, s, -np.inf)
    o, lse = attend(s, v)
    outputs = {"o_bf16" if axes["o_bf16"] else "o": o.reshape(-1, queries, d)}
    if axes["lse"]:
        outputs["lse"] = lse.reshape(-1, queries)
    return outputs
