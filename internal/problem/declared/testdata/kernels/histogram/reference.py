import numpy as np


def reference(axes, inputs):
    print("counting", axes["n"], "elements")  # what a reference prints harms nothing
    return {"counts": np.bincount(inputs["x"], minlength=axes["bins"])}
