"""Triton kernels on attune's simulator, with all its checkers and without a GPU.

>>> import attune.triton
>>> attune.triton.install()
>>> kernel[grid](x, y, n)  # x, y: CPU tensors or numpy arrays; a defect raises attune.triton.Finding
"""

from attune_sim._install import install, uninstall
from attune_sim._triton import Finding

__all__ = ["Finding", "install", "uninstall"]
