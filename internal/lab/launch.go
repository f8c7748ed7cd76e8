package lab

import (
	"encoding/binary"
	"math"

	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// newJob is the launch of an attention kernel, with the arguments in the order of its entry function (q, k, v, o, descale_q, descale_k, descale_v,
// heads, queries, keys, causal, softmax_scale).
func newJob(image *toolchain.Image, facts device.Facts, in *tensor.Inputs) device.Job {
	shape, launch := in.Shape, image.Record.Launch
	causal := int32(0)
	if shape.Causal {
		causal = 1
	}
	return device.Job{
		Image:              loadable(image, facts),
		Entry:              image.Record.Kernel,
		Grid:               grid(launch, shape, facts),
		Block:              [3]int{launch.Threads, 1, 1},
		DynamicSharedBytes: launch.DynamicSharedBytes,
		Args: []device.Arg{
			device.In(in.Q.Codes), device.In(in.K.Codes), device.In(in.V.Codes),
			device.Out(2 * shape.Rows() * shape.HeadDim),
			device.In(floats(in.Q.Descale)), device.In(floats(in.K.Descale)), device.In(floats(in.V.Descale)),
			device.Int32(int32(shape.HeadCount())), device.Int32(int32(shape.SeqQ)), device.Int32(int32(shape.SeqK)), device.Int32(causal),
			device.Float32(float32(1 / math.Sqrt(float64(shape.HeadDim)))),
		},
	}
}

// grid has a block for each tile of query rows of each head: tiles in x, heads in y and, where those are too many for y, in z as well. Where the kernel's
// blocks take tile after tile, there are as many as the device holds at once.
func grid(launch toolchain.Launch, shape tensor.Shape, facts device.Facts) [3]int {
	const mostY = 65535
	heads, tiles := shape.HeadCount(), (shape.SeqQ+launch.QueryRows-1)/launch.QueryRows
	if launch.BlocksPerMultiprocessor > 0 {
		return [3]int{min(heads*tiles, launch.BlocksPerMultiprocessor*max(facts.Multiprocessors, 1)), 1, 1}
	}
	z := (heads + mostY - 1) / mostY
	return [3]int{tiles, (heads + z - 1) / z, z}
}

// form is which part of an image a device runs.
type form string

const (
	asCode form = "cubin" // the machine code that ptxas made
	asPTX  form = "ptx"   // what the device itself makes of the PTX
)

// ranAs is machine code where it was built and fits the device, and PTX where not.
func ranAs(image *toolchain.Image, facts device.Facts) form {
	if image.Cubin != nil && native(image.Record.Arch, facts.Arch) {
		return asCode
	}
	return asPTX
}

func loadable(image *toolchain.Image, facts device.Facts) []byte {
	if ranAs(image, facts) == asCode {
		return image.Cubin
	}
	return image.PTX
}

func floats(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
