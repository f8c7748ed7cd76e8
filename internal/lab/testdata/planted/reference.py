import numpy as np


def reference(axes, inputs):
    n = axes["n"]
    x = np.zeros((n + 31) // 32 * 32, np.float64)
    x[:n] = inputs["x"]
    rows = x.reshape(-1, 32)
    return {"y": (rows + np.roll(rows, -1, axis=1)).reshape(-1)[:n]}
