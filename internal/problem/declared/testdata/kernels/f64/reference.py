import numpy as np


def reference(axes, inputs):
    return {"y": inputs["y"] + 1 / np.longdouble(3) * inputs["x"]}
