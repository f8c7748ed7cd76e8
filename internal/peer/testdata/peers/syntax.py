def f(axes, inputs):
    return inputs[
