import numpy as np


def reference(axes, inputs):
    return {"y": np.trunc(((inputs["x"].astype(np.int64) - 7) << 1) * 0.5 / 8)}
