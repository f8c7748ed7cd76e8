"""The quantisers in PyTorch have the arithmetic of the kernels: compared with their references."""

import collections
import importlib.util
import unittest

import package
import torch

from attune import _quantize, _reference

FP8 = torch.float8_e4m3fn

try:
    import numpy
except ImportError:
    numpy = None


def reference():
    """The function with the right outputs of the quantisers."""
    path = package.PYTHON.parent / "kernels" / "quantize" / "reference.py"
    spec = importlib.util.spec_from_file_location("quantize_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reference


@unittest.skipIf(numpy is None, "no numpy")
class Numerics(unittest.TestCase):
    def same(self, got, want, message):
        got, want = got.float().numpy().astype("float64"), numpy.asarray(want, dtype="float64")
        self.assertTrue(numpy.array_equal(got, want, equal_nan=True), message)

    def tensors(self, shapes, scale):
        source = torch.Generator().manual_seed(4)
        return [(torch.randn(shape, generator=source) * scale).half() for shape in shapes]

    def test_quantize(self):
        right = reference()
        for smooth, hadamard in ((0, 0), (1, 0), (0, 1), (1, 1)):
            for scale in (1.0, 1e-7, 300.0):
                q, k, v = self.tensors([(2, 4, 9, 32), (2, 2, 16, 32), (2, 2, 16, 32)], scale)
                k += scale
                q[0, 1] = 0
                if not smooth and not hadamard:
                    q[1, 0, 0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
                axes = {"bshd": 0, "dim": 32, "bf16": 0, "smooth": smooth, "hadamard": hadamard}
                axes = collections.defaultdict(lambda: 1, axes)  # one copy of all that it can compute
                want = right(axes, {"q": q.numpy(), "k": k.numpy(), "v": v.numpy()})
                got = _quantize.by_torch(q, k, v, bool(smooth), bool(hadamard))
                names = ("y_q", "descale_q", "y_k", "descale_k", "y_v", "descale_v", "mean_k")
                for name, x in zip(names, got):
                    with self.subTest(name=name, smooth=smooth, hadamard=hadamard, scale=scale):
                        self.same(x, want[name], name)

    def test_append(self):
        right = reference()
        k, v = self.tensors([(2, 3, 5, 16)] * 2, 2.0)
        caches = [torch.zeros(6, 3, 4, 16).to(FP8) for _ in "kv"]
        lengths, table = (
            torch.tensor([0, 9], dtype=torch.int32),
            torch.tensor([[4, 0, 2], [1, 5, 3]], dtype=torch.int32),
        )
        factors = [torch.rand(2, 3, generator=torch.Generator().manual_seed(i)) / 50 + 0.001 for i in range(2)]
        axes = {"bshd": 0, "dim": 16, "bf16": 0, "batch": 2, "rows": 5, "page_size": 4, "max_pages": 3, "paged": 1}
        inputs = {
            "k": k,
            "v": v,
            "descale_k": factors[0],
            "descale_v": factors[1],
            "lengths": lengths,
            "page_table": table,
        }
        inputs = {name: x.numpy() for name, x in inputs.items()}
        inputs.update(k_cache=caches[0].float().numpy(), v_cache=caches[1].float().numpy())
        want = right(axes, inputs)
        _reference.append(k, v, *caches, lengths, table, *factors)
        self.same(caches[0], want["k_cache"], "k_cache")
        self.same(caches[1], want["v_cache"], "v_cache")


if __name__ == "__main__":
    unittest.main()
