"""The right output, in float64."""

import numpy as np


def reference(axes, inputs):
    x = inputs["x"].astype(np.float64)
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return {"y": x / (1 + np.exp(-2 * u))}
