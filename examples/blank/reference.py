"""The right output, in float64. `inputs` has numpy arrays by name, `axes` the shape."""

import numpy as np


def reference(axes, inputs):
    return {"y": 2.5 * inputs["x"].astype(np.float64) + inputs["y"]}
