"""Run by `pytest --attune-sim` without a GPU, or by `pytest` on one."""

import pytest
import torch
from histogram import histogram

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, or pytest --attune-sim")


@needs_gpu
@pytest.mark.parametrize("n", [1, 1000, 5000])
def test_histogram(n):
    values = torch.randint(0, 256, (n,), dtype=torch.uint8, device="cuda")
    assert histogram(values).tolist() == torch.bincount(values.int(), minlength=256).tolist()


@needs_gpu
def test_plain_additions():
    """On the simulator this test fails, whatever the counts are: two programs add to the same counts."""
    values = torch.randint(0, 256, (5000,), dtype=torch.uint8, device="cuda")
    assert histogram(values, atomic=False).sum() <= 5000
