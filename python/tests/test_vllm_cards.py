"""Which GPUs the attention backend of vLLM takes, without vLLM: its classes are empty ones."""

import importlib
import sys
import types
import unittest
from unittest import mock

import package
import torch

Gpu = types.SimpleNamespace


def backend():
    """attune.vllm over empty classes of vLLM. The module is imported anew, and not kept."""
    base = types.ModuleType("vllm.v1.attention.backend")
    base.AttentionBackend = type("AttentionBackend", (), {"supported_kv_cache_layouts": ()})
    base.AttentionMetadata = base.AttentionMetadataBuilder = base.AttentionImpl = object
    base.AttentionCGSupport, base.MultipleOf = mock.Mock(), mock.Mock()
    modules = {base.__name__: base}
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends",
                 "vllm.v1.attention.backends.utils", "vllm.v1.attention.backends.registry"):  # fmt: skip
        modules[name] = types.ModuleType(name)
    with mock.patch.dict(sys.modules, modules):
        sys.modules.pop("attune.vllm", None)
        module = importlib.import_module("attune.vllm")
        sys.modules.pop("attune.vllm")
    return module


class Cards(unittest.TestCase):
    def setUp(self):
        self.module = backend()

    def test_capability(self):
        for major, taken in ((7, False), (8, True), (9, True), (10, True), (12, True)):
            self.assertIs(self.module.Backend.supports_compute_capability(Gpu(major=major, minor=0)), taken, major)

    def refusal(self, *arguments, gpu):
        return self.module.Backend.supports_combination(*arguments, 16, False, False, False, gpu)

    def test_kernel_of_card(self):
        """The library is asked for the GPU, the head dim and the dtypes, and its reason is passed on."""
        explain = mock.Mock(return_value=mock.Mock(form=None, reason="no form of this library has them"))
        with mock.patch.object(self.module, "explain", explain), mock.patch.object(self.module._library, "_call", object()):
            reason = self.refusal(128, torch.bfloat16, "fp8", gpu=Gpu(major=8, minor=6))
            self.assertEqual(reason, "no form of this library has them")
            call = explain.call_args
            self.assertEqual((call.kwargs["arch"], call.args[0].dtype, call.args[1].dtype, call.args[1].shape[3]),
                             ("sm_86", torch.bfloat16, torch.float8_e4m3fn, 128))  # fmt: skip
            explain.return_value.form = "warp_d128_options"
            self.assertIsNone(self.refusal(128, torch.bfloat16, "auto", gpu=Gpu(major=8, minor=6)))
            self.assertIs(explain.call_args.args[1].dtype, torch.bfloat16)
            self.assertIn("the model in", self.refusal(128, torch.bfloat16, "float16", gpu=Gpu(major=8, minor=6)))
        with mock.patch.object(self.module._library, "_call", None):
            self.assertIsNone(self.refusal(128, torch.bfloat16, "auto", gpu=Gpu(major=8, minor=6)))

    @unittest.skipIf(package.double() is None, "no double of the library")
    def test_arguments_are_taken(self):
        """The double of the library has a form for all."""
        for cache in ("auto", "fp8"):
            for head_dim in (64, 128, 256):
                for minor in (0, 6, 9):
                    self.assertIsNone(self.refusal(head_dim, torch.bfloat16, cache, gpu=Gpu(major=8, minor=minor)))


if __name__ == "__main__":
    unittest.main()
