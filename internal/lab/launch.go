package lab

import (
	"encoding/binary"
	"math"

	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// newJob is the launch of an attention kernel: one block for each tile of query rows of each head, all in one dimension, which has room for
// any number of heads; and the arguments in the order of the entry function (q, k, v, o, descale_q, descale_k, descale_v, queries, keys,
// causal, softmax_scale).
func newJob(image *toolchain.Image, facts device.Facts, in *tensor.Inputs) device.Job {
	shape, launch := in.Shape, image.Record.Launch
	causal := int32(0)
	if shape.Causal {
		causal = 1
	}
	return device.Job{
		Image:              loadable(image, facts),
		Entry:              image.Record.Kernel,
		Grid:               [3]int{(shape.SeqQ + launch.QueryRows - 1) / launch.QueryRows * shape.HeadCount(), 1, 1},
		Block:              [3]int{launch.Threads, 1, 1},
		DynamicSharedBytes: launch.DynamicSharedBytes,
		Args: []device.Arg{
			device.In(in.Q.Codes), device.In(in.K.Codes), device.In(in.V.Codes),
			device.Out(2 * shape.Rows() * shape.HeadDim),
			device.In(floats(in.Q.Descale)), device.In(floats(in.K.Descale)), device.In(floats(in.V.Descale)),
			device.Int32(int32(shape.SeqQ)), device.Int32(int32(shape.SeqK)), device.Int32(causal),
			device.Float32(float32(1 / math.Sqrt(float64(shape.HeadDim)))),
		},
	}
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
