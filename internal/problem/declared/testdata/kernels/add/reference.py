import numpy as np


def reference(axes, inputs):
    return {"y": inputs["x"].astype(np.float64) + inputs["z"]}
