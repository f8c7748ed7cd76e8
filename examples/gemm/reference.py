"""The right output, in float64."""

import numpy as np


def reference(axes, inputs):
    return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T}
