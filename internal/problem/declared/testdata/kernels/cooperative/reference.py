BLOCKS = 4  # the default of the knob


def reference(axes, inputs):
    x = inputs["x"]
    return {"partial": x.reshape(BLOCKS, -1).sum(axis=1), "y": x + x.sum()}
