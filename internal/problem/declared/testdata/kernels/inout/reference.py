def reference(axes, inputs):
    inputs["x"] *= 2  # in place, as the kernel does
    return {"next": inputs["next"] + axes["n"] // 32 + 3, "x": inputs["x"]}
