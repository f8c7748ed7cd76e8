package attention

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/tensor"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// argumentO is the index of o among a kernel's arguments.
const argumentO = 3

// While a kernel is timed its inputs are rotated by multiples of these sizes in bytes. A row has at
// least 16 codes.
const (
	codesUnit   = 16
	descaleUnit = 4
)

// Job is the launch of a build on inputs. The arguments are in the order of the entry function: q,
// k, v, o, lse if the kernel writes it, descale_q, descale_k, descale_v, heads, group, queries, keys,
// causal, softmax_scale, and the tensor maps that the launch contract names.
func Job(b problem.Build, facts device.Facts, in *tensor.Inputs) device.Job {
	shape, launch := in.Shape, b.Image.Record.Launch
	causal := int32(0)
	if shape.Causal {
		causal = 1
	}
	job := device.Job{
		Image:              b.Code,
		Entry:              b.Image.Record.EntryName(),
		Grid:               grid(launch, shape, facts),
		Block:              [3]int{launch.Threads, 1, 1},
		DynamicSharedBytes: launch.DynamicSharedBytes,
		Args: []device.Arg{
			device.Rotating(in.Q.Codes, codesUnit), device.Rotating(in.K.Codes, codesUnit), device.Rotating(in.V.Codes, codesUnit),
			device.Out(2 * shape.Rows() * shape.HeadDim),
			device.Rotating(floats(in.Q.Descale), descaleUnit), device.Rotating(floats(in.K.Descale), descaleUnit),
			device.Rotating(floats(in.V.Descale), descaleUnit),
			device.Int32(int32(shape.HeadCount())), device.Int32(int32(shape.Group())),
			device.Int32(int32(shape.SeqQ)), device.Int32(int32(shape.SeqK)), device.Int32(causal),
			device.Float32(float32(in.SoftmaxScale())),
		},
	}
	if launch.Cluster > 1 {
		job.Cluster = [3]int{launch.Cluster, 1, 1}
	}
	if launch.LSE != "" {
		job.Args = slices.Insert(job.Args, argumentO+1, device.Out(4*shape.Rows()))
	}
	for _, m := range launch.TensorMaps {
		job.Args = append(job.Args, device.Arg{TensorMap: newTensorMap(m, launch.Output, shape)})
	}
	return job
}

// rotatedInputs are the inputs of a timed launch of a job. Their original values are those of the
// codes, because the rotation gives a code the descale factor of another head.
func rotatedInputs(job device.Job, launch toolchain.Launch, in *tensor.Inputs, rotation device.Rotation) *tensor.Inputs {
	args := job.Rotate(rotation).Args
	descales := argumentO + 1
	if launch.LSE != "" {
		descales++
	}
	rotated := *in
	for i, t := range []*tensor.Tensor{&rotated.Q, &rotated.K, &rotated.V} {
		*t = tensor.Tensor{Codes: args[i].Input, Descale: decodeFloats(args[descales+i].Input)}
	}
	return &rotated
}

// newTensorMap is the tensor map of q, k, v or o. Its dimensions are columns, rows and heads; a box
// covers one head.
func newTensorMap(m toolchain.TensorMap, output toolchain.Output, shape tensor.Shape) *device.TensorMap {
	dtype, size, rows, heads := "u8", 1, shape.SeqK, shape.KVHeadCount()
	if m.Argument == argumentO {
		dtype, size = "f16", 2
		if output == toolchain.BF16 {
			dtype = "bf16"
		}
	}
	if m.Argument == argumentO || m.Argument == 0 {
		rows, heads = shape.SeqQ, shape.HeadCount()
	}
	row := shape.HeadDim * size
	swizzle := "none"
	if m.SwizzleBytes > 0 {
		swizzle = fmt.Sprintf("%dB", m.SwizzleBytes)
	}
	return &device.TensorMap{Arg: m.Argument, Map: tensormap.Map{
		Type:    dtype,
		Dims:    []int{shape.HeadDim, rows, heads},
		Strides: []int{row, rows * row},
		Box:     []int{m.InnerBytes / size, m.Rows, 1},
		Swizzle: swizzle,
		OOB:     "zero",
		// The rows of a tensor are contiguous, so the bytes that L2 fetches beyond a box are used
		// soon after.
		L2Promotion: "256B",
	}}
}

// maxGridYZ is CUDA's limit of a grid in y, and in z.
const maxGridYZ = 65535

// grid has a block for each tile of query rows of each head. Tiles are in x, in whole clusters.
// Heads are in y, and also in z if there are too many. With grouped heads, y has the heads of a
// group and z the K/V heads, so that a block needs no division to find its own. A persistent kernel
// gets as many blocks as the device holds at once.
func grid(launch toolchain.Launch, shape tensor.Shape, facts device.Facts) [3]int {
	heads, tiles := shape.HeadCount(), (shape.SeqQ+launch.QueryRows-1)/launch.QueryRows
	cluster := max(launch.Cluster, 1)
	if launch.BlocksPerMultiprocessor > 0 {
		wanted := (heads*tiles + cluster - 1) / cluster
		room := max(launch.BlocksPerMultiprocessor*max(facts.Multiprocessors, 1)/cluster, 1)
		return [3]int{min(wanted, room) * cluster, 1, 1}
	}
	y, z := shape.Group(), shape.KVHeadCount()
	if y == 1 {
		z = (heads + maxGridYZ - 1) / maxGridYZ
		y = (heads + z - 1) / z
	}
	return [3]int{(tiles + cluster - 1) / cluster * cluster, y, z}
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
