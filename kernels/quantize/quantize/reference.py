"""The right outputs. The arithmetic is that of the kernel, in float32, so results are equal."""

import numpy as np

LARGEST = np.float32(448)
SMALLEST_AMAX = np.float32(2.0**-112)


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


def reference(axes, inputs):
    x = {name: heads_first(axes, inputs[name]) for name in "qkv"}
    mean = np.zeros_like(x["k"][:, :, :1])
    if axes["smooth"]:
        mean = x["k"].mean(axis=2, keepdims=True, dtype=np.float64).astype(np.float32)
    outputs = {"mean_k": mean[:, :, 0]} if axes["mean"] else {}
    if axes["hadamard"]:
        x["q"], x["k"], mean = hadamard(x["q"]), hadamard(x["k"]), hadamard(mean)
    x["k"] = x["k"] - mean
    for name in "qkv":
        outputs["y_" + name], descale = quantized(x[name])
        outputs["descale_" + name] = np.repeat(descale, axes["copies"], axis=0)
    return outputs
