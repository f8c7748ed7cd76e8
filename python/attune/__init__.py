"""FP8 attention for PyTorch on NVIDIA Hopper GPUs.

>>> import attune
>>> o = attune.sdpa(q, k, v, causal=True)  # q, k, v: CUDA tensors [batch, heads, rows, head_dim]
"""

from attune._attention import quantize, sdpa
from attune._library import version
from attune._patch import patch

__all__ = ["patch", "quantize", "sdpa", "version"]
