"""The right outputs of the quantisers. The arithmetic is that of the kernels, in float32, so results
are equal."""

import numpy as np

LARGEST = np.float32(448)
SMALLEST_AMAX = np.float32(2.0**-112)  # of quantize
SAMPLE_CHUNKS = 128  # of cast
LARGEST_EXPONENT = 112


def e4m3(x):
    """x rounded to E4M3: nearest even, saturating at 448. NaN stays NaN."""
    x = x.astype(np.float64)
    _, exponent = np.frexp(x)  # |x| is in [0.5, 1) * 2 ** exponent
    step = np.ldexp(1.0, np.maximum(exponent, -5) - 4)
    return np.clip(np.round(x / step) * step, -448, 448)


def heads_first(axes, x):
    """x as float32, (batch, heads, rows, dim)."""
    if axes["bshd"]:
        batch, heads, rows, dim = x.shape
        x = x.reshape(batch, rows, heads, dim).transpose(0, 2, 1, 3)
    x = x[..., : axes["dim"]]
    if axes["bf16"]:
        bits = np.ascontiguousarray(x).view(np.uint16).astype(np.uint32)
        return (bits << 16).view(np.float32)
    return x.astype(np.float32)


# ---- cast ----


def scale_of(amax, exponent):
    """The power of two that gives amax this exponent; 1 for 0."""
    of_amax = np.floor(np.log2(np.maximum(amax, 2.0**-126)))
    return np.where(amax == 0, 1.0, 2.0 ** np.minimum(exponent - of_amax, LARGEST_EXPONENT))


def cast(axes, x):
    """The E4M3 values of x and the factor of each head."""
    magnitudes = np.where(np.isfinite(x), np.abs(x), np.float32(0)).astype(np.float64)
    dim, rows = axes["dim"], x.shape[2]
    sample_rows = SAMPLE_CHUNKS // (8 if dim <= 64 else 16 if dim <= 128 else 32)
    sample = magnitudes[:, :, np.arange(sample_rows) * rows // sample_rows].max(axis=(2, 3))
    amax = magnitudes.max(axis=(2, 3))
    scale = scale_of(sample, 3)
    fits = np.where(sample == 0, amax == 0, amax * scale <= 448)
    scale = np.where(fits, scale, scale_of(amax, 7))
    return e4m3(x * scale[:, :, None, None]), (1 / scale).astype(np.float32)


# ---- quantize ----


def quantized(x):
    """The E4M3 values of x and the factor of each head."""
    magnitudes = np.where(np.isfinite(x), np.abs(x), np.float32(0))
    amax = magnitudes.max(axis=(2, 3))
    zero = amax == 0
    amax = np.maximum(amax, SMALLEST_AMAX)
    scale = np.where(zero, np.float32(1), LARGEST / amax)
    descale = np.where(zero, np.float32(1), amax / LARGEST)
    return e4m3(x * scale[:, :, None, None]), descale


def hadamard(x):
    """Rows times the Hadamard matrix over sqrt(dim), by butterflies in the order of the kernel."""
    dim = x.shape[-1]
    distance = 1
    while distance < dim:
        pairs = x.reshape(*x.shape[:-1], dim // (2 * distance), 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        distance *= 2
    return x * (np.float32(1) / np.sqrt(np.float32(dim)))


def transformed(axes, inputs):
    """Q, K and V after smooth-K and Hadamard, and the means of K."""
    x = {name: heads_first(axes, inputs[name]) for name in "qkv"}
    mean = np.zeros_like(x["k"][:, :, :1])
    if axes["smooth"]:
        mean = x["k"].mean(axis=2, keepdims=True, dtype=np.float64).astype(np.float32)
    outputs = {"mean_k": mean[:, :, 0]} if axes["mean"] else {}
    if axes["hadamard"]:
        x["q"], x["k"], mean = hadamard(x["q"]), hadamard(x["k"]), hadamard(mean)
    x["k"] = x["k"] - mean
    return x, outputs


# ---- append ----


def appended(axes, inputs, name):
    """The cache of K or V with the new rows."""
    scale = np.float32(1) / inputs["descale_" + name]
    codes = e4m3(heads_first(axes, inputs[name]) * scale[:, :, None, None])
    cache = inputs[name + "_cache"].copy()
    for b in range(axes["batch"]):
        if inputs["lengths"][b] < 0:
            continue
        for row in range(axes["rows"]):
            page, place = divmod(int(inputs["lengths"][b]) + row, axes["page_size"])
            if page < axes["max_pages"]:
                page = inputs["page_table"][b, page] if axes["paged"] else b
                cache[page, :, place] = codes[b, :, row]
    return cache


# ---- quantize8 ----


def s8(x, rows, group_of):
    """The s8 values of x and the factors of groups: group_of has the group of each row among `rows`."""
    groups = group_of.max() + 1
    blocks = -(-x.shape[2] // rows)
    group = (np.arange(blocks)[:, None] * groups + group_of).reshape(-1)[: x.shape[2]]
    row_amax = np.abs(x).max(axis=3)
    amax = np.zeros((*x.shape[:2], blocks * groups), dtype=np.float32)
    for g in range(blocks * groups):
        amax[:, :, g] = row_amax[:, :, group == g].max(axis=2, initial=0)
    scale = np.float32(127) / np.maximum(amax, SMALLEST_AMAX)
    descale = np.where(amax == 0, np.float32(1), np.maximum(amax, SMALLEST_AMAX) / np.float32(127))
    codes = np.rint(x * scale[:, :, group, None])
    return codes.astype(np.int8), descale.astype(np.float32)


def quantized8(axes, inputs):
    """Q and K in s8, and V in E4M3 if it is given."""
    x = {name: heads_first(axes, inputs[name]) for name in "qkv" if name in inputs}
    outputs = {}
    if axes["smooth"]:
        mean = x["k"].mean(axis=2, dtype=np.float64).astype(np.float32)
        group = axes["heads"] // axes["kv_heads"]
        outputs["mean_k"] = mean
        outputs["q_dot_mean"] = np.einsum("bhrd,bhd->bhr", x["q"].astype(np.float64), np.repeat(mean, group, axis=1))
        x["k"] = x["k"] - mean[:, :, None]
    outputs["y_q"], outputs["descale_q"] = s8(x["q"], 32, np.arange(32) % 8)
    outputs["y_k"], outputs["descale_k"] = s8(x["k"], 64, np.arange(64) % 8 // 2)
    if "v" not in x:
        return outputs
    magnitudes = np.where(np.isfinite(x["v"]), np.abs(x["v"]), np.float32(0)).max(axis=2)
    factors = np.where(magnitudes == 0, np.float32(1), np.maximum(magnitudes, SMALLEST_AMAX) / LARGEST)
    outputs["y_v"] = e4m3(x["v"] / factors[:, :, None])
    outputs["descale_v"] = factors
    return outputs


def reference(axes, inputs):
    """Of append, if there is a cache; of quantize8, if it has no Hadamard; of quantize, if it has the
    axes of options; of cast otherwise."""
    if "k_cache" in inputs:
        return {name + "_cache": appended(axes, inputs, name) for name in "kv"}
    if "smooth" in axes and "hadamard" not in axes:
        return quantized8(axes, inputs)
    if "smooth" in axes:
        x, outputs = transformed(axes, inputs)
        codes = {name: quantized(x[name]) for name in "qkv"}
    else:
        outputs = {}
        codes = {name: cast(axes, heads_first(axes, inputs[name])) for name in "qkv"}
    for name in "qkv":
        outputs["y_" + name], descale = codes[name]
        outputs["descale_" + name] = np.repeat(descale, axes["copies"], axis=0)
    return outputs
