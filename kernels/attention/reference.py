"""The right outputs of all attention kernels, in float64. An axis or an input that a kernel does not
have is off."""

import numpy as np


def fp16_of_bits(x):
    """The FP16 numbers whose bits an argument has that is declared as BF16."""
    return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.float16)


def load(axes, inputs, name, heads):
    """Q, K or V as (batch, heads, rows, D). Packed rows have one batch entry; pages are batch entries."""
    if name in inputs:
        x = inputs[name]
        # Bits of FP16 in native and warp, but for what is E4M3 there; V of warp8 has a type of its own.
        fp16 = "o" in inputs and "descale_" + name not in inputs and "k_s8" not in inputs
        if fp16 or name == "q" and axes.get("q_fp16"):  # mixed
            x = fp16_of_bits(x)
    elif name + "_s8" in inputs:  # warp8
        x = inputs[name + "_s8"]
    else:  # Q of decode in 16 bits
        x = inputs["q_bf16" if "q_bf16" in inputs else "q_fp16"]
        if axes["q_rows_first"]:
            batch, heads, rows, d = x.shape
            x = x.reshape(batch, rows, heads, d).transpose(0, 2, 1, 3)
    if x.ndim == 3:
        x = x.reshape(axes["batch"], heads, *x.shape[1:])
    return x.transpose(0, 2, 1, 3) if axes.get("rows_first") else x


def bounds(axes, inputs, name, sequence):
    """First and last row of a sequence in `queries` or `keys`, and its batch index."""
    offsets = inputs.get("cu_" + name)
    if offsets is None:
        return 0, axes[name], sequence
    return int(offsets[sequence]), int(offsets[sequence + 1]), 0


def descaled(inputs, name, sequence, x):
    """Q, K or V of a sequence, (heads, rows, D), times the factors of its heads, or in warp8 of groups
    of rows or of columns."""
    x = x.astype(np.float64)
    if name not in inputs and name + "_s8" not in inputs or "descale_" + name not in inputs:
        return x
    factors = inputs["descale_" + name][sequence].astype(np.float64)
    if factors.ndim == 1 or factors.shape[1] == 1:
        return x * factors.reshape(-1, 1, 1)
    row = np.arange(x.shape[1])
    if name == "v":
        return x * factors[:, None, :]
    if name == "q":
        return x * factors[:, row // 32 * 8 + row % 8, None]
    return x * factors[:, row // 64 * 4 + row % 8 // 2, None]


def keys_of(axes, inputs, name, x, sequence):
    """K or V of a sequence, (kv_heads, length, D): packed, paged or padded."""
    first, last, index = bounds(axes, inputs, "keys", sequence)
    length = last - first
    if axes.get("lengths"):
        length = min(max(int(inputs["lengths"][sequence]), 0), length)
    if axes.get("pages"):
        rows = np.concatenate(list(x[inputs["page_table"][sequence]]), axis=1)
    else:
        rows = x[index, :, first:last]
    return descaled(inputs, name, sequence, rows[:, :length])


def softmax_scale(axes, d):
    """Of integers up to q_max and k_max the scores have a spread that does not depend on these."""
    if "q_max" not in axes:
        return 1 / np.sqrt(d)
    q_max, k_max = max(axes["q_max"], 1), max(axes["k_max"], 1)
    return 1.5 * axes.get("spread", 1) / np.sqrt(d) / (q_max * k_max)


def visible(axes, queries, keys):
    """Which keys each query of a sequence sees. The last query is at the last key."""
    query = keys - queries + np.arange(queries)[:, None]
    key = np.arange(keys)[None, :]
    seen = np.ones((queries, keys), dtype=bool)
    if axes["causal"]:
        seen &= key <= query
    left, right = axes.get("window") or axes.get("left"), axes.get("right")
    if left:
        seen &= key > query - left
    if right:
        seen &= key < query + right
    return seen


def alibi(inputs, sequence, queries, keys):
    """What is added to the scores of a sequence, (heads, queries, keys): a slope times the distance
    of a key from the query's own."""
    slopes = inputs["alibi_slopes"].astype(np.float64)
    distances = np.abs(keys - queries + np.arange(queries)[:, None] - np.arange(keys))
    return -slopes[sequence % len(slopes), :, None, None] * distances


def ancestors(masks, keys):
    """Which keys each query of a tree sees, without other masks. The last keys are the queries' own:
    of these the bits say which, of which key number 0 is the lowest."""
    queries = len(masks)
    token = np.arange(keys) - (keys - queries)
    bits = masks.astype(np.int64)[:, None] >> np.clip(token, 0, 63) & 1
    return (token < 0) | (bits == 1)


def attend(s, v, sinks):
    """Softmax over the scores and the sink, times V; and the log-sum-exp of both. A row without keys
    is 0."""
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
    heads = kv_heads * group
    all_q = load(axes, inputs, "q", heads)
    all_k, all_v = (load(axes, inputs, name, kv_heads) for name in ("k", "v"))
    d = all_q.shape[-1]
    sinks = np.full(heads, -np.inf)
    if axes.get("sinks"):
        sinks = inputs["sinks"].astype(np.float64)
    sinks = sinks.reshape(kv_heads, group, 1, 1)
    lse = np.zeros(all_q.shape[:-1])
    o = np.zeros((*lse.shape, all_v.shape[-1]))
    for b in range(axes["batch"]):
        first, last, index = bounds(axes, inputs, "queries", b)
        q = descaled(inputs, "q", b, all_q[index, :, first:last])
        q = q.reshape(kv_heads, group, last - first, d)
        k, v = keys_of(axes, inputs, "k", all_k, b), keys_of(axes, inputs, "v", all_v, b)
        s = q @ k[:, None].transpose(0, 1, 3, 2) * softmax_scale(axes, d)
        if axes.get("softcap"):
            s = axes["softcap"] * np.tanh(s / axes["softcap"])
        if axes.get("alibi"):
            s = s + alibi(inputs, b, last - first, k.shape[1]).reshape(kv_heads, group, last - first, k.shape[1])
        seen = visible(axes, last - first, k.shape[1])
        if axes.get("tree"):
            seen &= ancestors(inputs["tree_mask"][index, first:last], k.shape[1])
        s = np.where(seen, s, -np.inf)
        row_o, row_lse = attend(s, v[:, None], sinks)
        o[index, :, first:last] = row_o.reshape(heads, last - first, o.shape[-1])
        lse[index, :, first:last] = row_lse.reshape(heads, last - first)
    if "q_dot_mean" in inputs:
        lse += softmax_scale(axes, d) * inputs["q_dot_mean"]
    return outputs_of(axes, inputs, o, lse)


def outputs_of(axes, inputs, o, lse):
    """O and the log-sum-exp in the layout of the kernel, by the names of its arguments."""
    if axes.get("rows_first"):
        o = o.transpose(0, 2, 1, 3)
    if "q" in inputs and inputs["q"].ndim == 3:
        o, lse = o.reshape(inputs["q"].shape), lse.reshape(inputs["q"].shape[:-1])
    bf16 = axes.get("bf16") or axes.get("o_bf16") or "spread" in axes and "o" not in inputs
    outputs = {"o_bf16" if bf16 else "o": o}
    if axes["lse"]:
        outputs["lse"] = lse
    return outputs
