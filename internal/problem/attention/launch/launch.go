package launch

import (
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// ArgumentO is the index of o among a kernel's arguments.
const ArgumentO = 3

// HeadDimKnob is the knob that the head dim of a shape must equal.
const HeadDimKnob = "HEAD_DIM"

// Inputs are the arguments that a kernel reads: E4M3 codes, and a float32 factor per head.
type Inputs struct {
	Q, K, V                      device.Arg
	DescaleQ, DescaleK, DescaleV device.Arg
}

// Job is the launch of an image on inputs. Code is the part of the image that the device loads. The
// arguments are in the order of the entry function: q, k, v, o, lse if the kernel writes it,
// descale_q, descale_k, descale_v, heads, group, queries, keys, causal, softmax_scale, and the tensor
// maps that the launch contract names.
func Job(image *toolchain.Image, code []byte, facts device.Facts, shape tensor.Shape, scale float64, in Inputs) device.Job {
	contract := image.Record.Launch
	causal := int32(0)
	if shape.Causal {
		causal = 1
	}
	job := device.Job{
		Image:              code,
		Entry:              image.Record.EntryName(),
		Grid:               grid(contract, shape, facts),
		Block:              [3]int{contract.Threads, 1, 1},
		DynamicSharedBytes: contract.DynamicSharedBytes,
		Args: []device.Arg{
			in.Q, in.K, in.V,
			device.Out(2 * shape.Rows() * shape.HeadDim),
			in.DescaleQ, in.DescaleK, in.DescaleV,
			device.Int32(int32(shape.HeadCount())), device.Int32(int32(shape.Group())),
			device.Int32(int32(shape.SeqQ)), device.Int32(int32(shape.SeqK)), device.Int32(causal),
			device.Float32(float32(scale)),
		},
	}
	if contract.Cluster > 1 {
		job.Cluster = [3]int{contract.Cluster, 1, 1}
	}
	if contract.LSE != "" {
		job.Args = slices.Insert(job.Args, ArgumentO+1, device.Out(4*shape.Rows()))
	}
	for _, m := range contract.TensorMaps {
		job.Args = append(job.Args, device.Arg{TensorMap: newTensorMap(m, contract.Output, shape)})
	}
	return job
}

// newTensorMap is the tensor map of q, k, v or o. Its dimensions are columns, rows and heads; a box
// covers one head.
func newTensorMap(m toolchain.TensorMap, output toolchain.Output, shape tensor.Shape) *device.TensorMap {
	dtype, size, rows, heads := "u8", 1, shape.SeqK, shape.KVHeadCount()
	if m.Argument == ArgumentO {
		dtype, size = "f16", 2
		if output == toolchain.BF16 {
			dtype = "bf16"
		}
	}
	if m.Argument == ArgumentO || m.Argument == 0 {
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

// CheckGrid refuses a shape that exceeds a grid.
func CheckGrid(shape tensor.Shape) error {
	if shape.Group() > 1 && max(shape.Group(), shape.KVHeadCount()) > maxGridYZ {
		return fmt.Errorf("shape %s has %d K/V heads over all batches, each for %d heads; "+
			"a grid of grouped heads holds at most %d of either",
			shape, shape.KVHeadCount(), shape.Group(), maxGridYZ)
	}
	return nil
}

// grid has a block for each tile of query rows of each head. Tiles are in x, in whole clusters.
// Heads are in y, and also in z if there are too many. With grouped heads, y has the heads of a
// group and z the K/V heads, so that a block needs no division to find its own. A persistent kernel
// gets as many blocks as the device holds at once.
func grid(contract toolchain.Launch, shape tensor.Shape, facts device.Facts) [3]int {
	heads, tiles := shape.HeadCount(), (shape.SeqQ+contract.QueryRows-1)/contract.QueryRows
	cluster := max(contract.Cluster, 1)
	if contract.BlocksPerMultiprocessor > 0 {
		wanted := (heads*tiles + cluster - 1) / cluster
		room := max(contract.BlocksPerMultiprocessor*max(facts.Multiprocessors, 1)/cluster, 1)
		return [3]int{min(wanted, room) * cluster, 1, 1}
	}
	y, z := shape.Group(), shape.KVHeadCount()
	if y == 1 {
		z = (heads + maxGridYZ - 1) / maxGridYZ
		y = (heads + z - 1) / z
	}
	return [3]int{(tiles + cluster - 1) / cluster * cluster, y, z}
}
