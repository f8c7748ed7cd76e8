"""The right output, in float64."""

import numpy as np


def reference(axes, inputs):
    x = inputs["x"].astype(np.float64)
    w = inputs["w"].astype(np.float64)
    return {"y": x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w}
