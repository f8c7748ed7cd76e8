package attention

import (
	"encoding/binary"
	"math"
	"slices"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// While a kernel is timed its inputs are rotated by multiples of these sizes in bytes. A row has at
// least 16 codes.
const (
	codesUnit   = 16
	descaleUnit = 4
)

// Job is the launch of a build on inputs.
func Job(b problem.Build, facts device.Facts, in *tensor.Inputs) device.Job {
	codes := func(t tensor.Tensor) device.Arg { return device.Rotating(t.Codes, codesUnit) }
	factors := func(t tensor.Tensor) device.Arg { return device.Rotating(floats(t.Descale), descaleUnit) }
	return form.Job(b.Image, b.Code, facts, in.Shape, in.SoftmaxScale(), form.Inputs{
		Q: codes(in.Q), K: codes(in.K), V: codes(in.V),
		DescaleQ: factors(in.Q), DescaleK: factors(in.K), DescaleV: factors(in.V),
	})
}

// rotatedInputs are the inputs of a timed launch of a job. Their original values are those of the
// codes, because the rotation gives a code the descale factor of another head.
func rotatedInputs(job device.Job, contract toolchain.Launch, in *tensor.Inputs, rotation device.Rotation) *tensor.Inputs {
	args := job.Rotate(rotation).Args
	descales := form.ArgumentO + 1
	if contract.LSE != "" {
		descales++
	}
	rotated := *in
	for i, t := range []*tensor.Tensor{&rotated.Q, &rotated.K, &rotated.V} {
		*t = tensor.Tensor{Codes: args[i].Input, Descale: decodeFloats(args[descales+i].Input)}
	}
	return &rotated
}

func decodeFloats(data []byte) []float32 {
	var values []float32
	for code := range slices.Chunk(data, 4) {
		values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(code)))
	}
	return values
}

func floats(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
