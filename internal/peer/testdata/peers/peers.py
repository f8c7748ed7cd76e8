"""Functions for the fake PyTorch. They compute y = x + w, and count = x + 1 of integers."""
import sys

import torch
from beside import ONE

calls = []


def a_dict(axes, inputs):
    assert axes == {"n": 4, "rows": 2} and sorted(inputs) == ["w", "x"]
    assert inputs["x"].is_cuda and inputs["x"].dtype is torch.float16 and inputs["x"].shape == (2, 4)
    inputs.pop("unknown", None)
    axes.clear()  # its own dict
    return {"y": inputs["x"] + inputs["w"]}


def a_tensor(axes, inputs):
    calls.append(inputs["x"])
    return inputs["x"] + inputs["w"]


def integers(axes, inputs):
    return {"count": inputs["x"].to(torch.int64) + ONE, "code": inputs["code"] + 0}


def cached(axes, inputs):
    """Computes once, outside of the graph."""
    if not calls or isinstance(calls[-1], int) or calls[-1].dtype is not torch.float32:
        calls.append(torch.zeros((2, 4), torch.float32))
    return calls[-1]


def wrong(axes, inputs):
    return inputs["x"] + inputs["w"] + 1


def raises(axes, inputs):
    raise ValueError("no\nluck")


def exits(axes, inputs):
    sys.exit(3)


def reads(axes, inputs):
    y = inputs["x"] + inputs["w"]
    return y + (0 * inputs["x"].item())


def exits_in_capture(axes, inputs):
    if torch.cuda.captured is not None:
        sys.exit("enough")
    return inputs["x"] + inputs["w"]


def faults(axes, inputs):
    torch.cuda.fault()
    return inputs["x"] + inputs["w"]


def faults_later(axes, inputs):
    if torch.cuda.captured is not None:
        torch.cuda.captured.append(torch.cuda.fault)
    return inputs["x"] + inputs["w"]


def nothing(axes, inputs):
    return None


def a_list(axes, inputs):
    return [inputs["x"]]


def another(axes, inputs):
    return {"z": inputs["x"]}


def no_output(axes, inputs):
    return {}


def a_number(axes, inputs):
    return {"y": 3.0}


def on_the_host(axes, inputs):
    return (inputs["x"] + inputs["w"]).cpu()


def a_row(axes, inputs):
    return torch.zeros((4,), torch.float16)


def wide(axes, inputs):
    return torch.zeros((2, 4), torch.float32)


def in_place(axes, inputs):
    inputs["x"].add_(1)
    return inputs["x"] + inputs["w"]


def an_input(axes, inputs):
    return inputs["x"]


def one_argument(axes):
    return None


number = 7
