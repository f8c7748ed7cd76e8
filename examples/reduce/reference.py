"""The right outputs, in float64."""

import numpy as np

TILE = 16384  # kTile of reduce.cu


def reference(axes, inputs):
    x = inputs["x"].astype(np.float64)
    starts = np.arange(0, axes["n"], TILE)
    return {
        "partial": np.add.reduceat(x, starts),
        "y": x.sum(keepdims=True),
        "queue": np.zeros(2, np.uint32),
    }
