import numpy as np


def reference(axes, inputs):
    x = inputs["x"].astype(np.float64)
    scale = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)
    return {"y": x * scale * inputs["w"].astype(np.float64)}
