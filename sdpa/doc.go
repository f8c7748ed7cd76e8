// Package sdpa computes attention in FP8 and 16 bits, on an NVIDIA GPU since Ampere or on the CPU.
//
//	dev, err := sdpa.Auto()
//	...
//	err = sdpa.Forward(ctx, dev, sdpa.Problem{Causal: true}, q, k, v, o)
//
// A [Tensor] is an array in host memory. [Quantize] rounds one to E4M3 with a factor per head.
// [Device.Upload] keeps a tensor in the memory of a device, so that repeated calls do not copy it.
//
// # Devices
//
// [CPU] computes every problem, in float32 on all cores, with AVX2 or AVX-512 where the processor
// has it. [GPU] has the kernels of the C library: E4M3, FP16 or BF16 in, FP16 or BF16 out, head dims
// 64, 128 and 256, and in 16 bits multiples of 8, with windows, sinks, packed and paged sequences. Any other problem is
// [ErrUnsupported] with its reason, unless Problem.Fallback is set: then the CPU computes it. [Auto]
// takes the first GPU that has kernels and falls back to the CPU, so that a program runs everywhere.
//
// No cgo is needed, and no CUDA toolkit: the driver compiles the PTX that the package embeds.
package sdpa
