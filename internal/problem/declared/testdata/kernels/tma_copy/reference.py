def reference(axes, inputs):
    return {"y": inputs["x"]}
