import numpy as np


def reference(axes, inputs):
    return {"total": inputs["total"] + np.sum(inputs["x"], dtype=np.float64, keepdims=True)}
