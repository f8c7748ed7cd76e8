"""Attention for PyTorch on NVIDIA GPUs: on Hopper in FP8 and 16 bits, on others since Ampere in 8 and 16 bits.

>>> import attune
>>> o = attune.sdpa(q, k, v, causal=True)  # q, k, v: CUDA tensors [batch, heads, rows, head_dim]
"""

from attune._attention import sdpa, sdpa_varlen
from attune._cache import append, decode, prefill
from attune._explain import Explanation, explain
from attune._library import package, version
from attune._merge import merge
from attune._patch import patch
from attune._quantize import quantize
from attune._register import register

__all__ = ["Explanation", "append", "decode", "explain", "merge", "patch", "prefill", "quantize", "register", "sdpa",
           "sdpa_varlen", "version"]  # fmt: skip

__version__ = package()
