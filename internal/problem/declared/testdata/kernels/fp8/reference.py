def reference(axes, inputs):
    return {"e4m3": inputs["x"], "half": inputs["codes"]}
