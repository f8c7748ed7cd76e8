package sdpa_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"attune/sdpa"
)

// must stops an example at an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// tensor makes an E4M3 tensor with a factor per head.
func tensor(shape [4]int, values ...float32) *sdpa.Tensor {
	x := must(sdpa.FromFloat32(sdpa.FP32, shape, values))
	return must(sdpa.Quantize(x, sdpa.Steps{}))
}

// Two queries and three keys of head dim 2. The last query sees all keys, the first sees two.
func ExampleForward() {
	dev := must(sdpa.Auto()) // a GPU, or the CPU
	defer dev.Close()

	q := tensor([4]int{1, 1, 2, 2}, 4, 0, 0, 4)
	k := tensor([4]int{1, 1, 3, 2}, 4, 0, 0, 4, 4, 4)
	v := tensor([4]int{1, 1, 3, 2}, 1, 0, 0, 1, 1, 1)
	o := must(sdpa.NewTensor(sdpa.FP16, q.Shape))
	lse := make([]float32, 2)

	problem := sdpa.Problem{Causal: true, LSE: lse}
	if err := sdpa.Forward(context.Background(), dev, problem, q, k, v, o); err != nil {
		panic(err)
	}
	fmt.Printf("o   %.4f\n", must(o.Float32s()))
	fmt.Printf("lse %.3f\n", lse)
	// Output:
	// o   [1.0000 0.0000 0.5000 1.0000]
	// lse [11.314 12.007]
}

// With a window of one key to the left and none to the right a query sees two keys. A sink takes
// half of the weight of a row whose keys score 0.
func ExampleForward_window() {
	q := tensor([4]int{1, 1, 4, 1}, 0, 0, 0, 0)
	k := tensor([4]int{1, 1, 4, 1}, 1, 1, 1, 1)
	v := must(sdpa.FromFloat32(sdpa.E4M3, [4]int{1, 1, 4, 1}, []float32{8, 16, 32, 64}))
	o := must(sdpa.NewTensor(sdpa.FP32, q.Shape))

	problem := sdpa.Problem{Window: &sdpa.Window{Left: 1, Right: 0}}
	for _, sinks := range [][]float32{nil, {0}} {
		problem.Sinks = sinks
		if err := sdpa.Forward(context.Background(), sdpa.CPU(), problem, q, k, v, o); err != nil {
			panic(err)
		}
		fmt.Printf("%.2f\n", must(o.Float32s()))
	}
	// Output:
	// [8.00 12.00 24.00 48.00]
	// [4.00 8.00 16.00 32.00]
}

// Two concatenated sequences: one query over two keys, and two queries over one key.
func ExampleForward_packed() {
	q := tensor([4]int{1, 1, 3, 1}, 0, 0, 0)
	k := tensor([4]int{1, 1, 3, 1}, 1, 1, 1)
	v := must(sdpa.FromFloat32(sdpa.E4M3, [4]int{1, 1, 3, 1}, []float32{8, 16, 32}))
	o := must(sdpa.NewTensor(sdpa.FP32, q.Shape))

	problem := sdpa.Problem{QueryOffsets: []int{0, 1, 3}, KeyOffsets: []int{0, 2, 3}}
	if err := sdpa.Forward(context.Background(), sdpa.CPU(), problem, q, k, v, o); err != nil {
		panic(err)
	}
	fmt.Printf("%.2f\n", must(o.Float32s()))
	// Output: [12.00 32.00 32.00]
}

// K and V stay on the device; each call copies a query and its output.
func ExampleDevice_Upload() {
	dev := must(sdpa.Auto())
	defer dev.Close()
	k := must(dev.Upload(tensor([4]int{1, 1, 2, 2}, 1, 0, 0, 1)))
	v := must(dev.Upload(tensor([4]int{1, 1, 2, 2}, 4, 1, 4, 2)))
	defer k.Free()
	defer v.Free()

	q := tensor([4]int{1, 1, 1, 2}, 0, 0)
	o := must(sdpa.NewTensor(sdpa.FP32, q.Shape))
	if err := sdpa.Forward(context.Background(), dev, sdpa.Problem{}, q, k, v, o); err != nil {
		panic(err)
	}
	fmt.Printf("%.2f\n", must(o.Float32s()))
	// Output: [4.00 1.50]
}

// One factor per head maps the largest magnitude to 448, the largest E4M3 value.
func ExampleQuantize() {
	x := must(sdpa.FromFloat32(sdpa.FP32, [4]int{1, 2, 1, 4}, []float32{1, -2, 0.3, 7, 0.01, 0.02, 0.03, -0.04}))
	y := must(sdpa.Quantize(x, sdpa.Steps{}))
	fmt.Printf("codes   %x\n", y.Data)
	fmt.Printf("descale %.6f\n", y.Descale)
	fmt.Printf("values  %.4f\n", must(y.Float32s()))
	// Output:
	// codes   68f05a7e6e767afe
	// descale [0.015625 0.000089]
	// values  [1.0000 -2.0000 0.3125 7.0000 0.0100 0.0200 0.0286 -0.0400]
}

// Tensors travel as safetensors files, which Python reads and writes too.
func ExampleReadSafetensors() {
	path := filepath.Join(must(os.MkdirTemp("", "")), "qkv.safetensors")
	defer os.RemoveAll(filepath.Dir(path))
	q := tensor([4]int{1, 2, 1, 2}, 1, 2, 4, 8)
	if err := sdpa.WriteSafetensors(path, map[string]*sdpa.Tensor{"q": q}); err != nil {
		panic(err)
	}

	tensors := must(sdpa.ReadSafetensors(path))
	fmt.Println(tensors["q"].DType, tensors["q"].Shape, must(tensors["q"].Float32s()))
	_, err := sdpa.ReadSafetensors(filepath.Join(filepath.Dir(path), "none.safetensors"))
	fmt.Println(errors.Is(err, os.ErrNotExist))
	// Output:
	// E4M3 [1 2 1 2] [1 2 4 8]
	// true
}
