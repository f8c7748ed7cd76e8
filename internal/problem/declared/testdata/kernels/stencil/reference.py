import numpy as np


def reference(axes, inputs):
    x = np.pad(inputs["in"], 1)
    return {"out": x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1]}
