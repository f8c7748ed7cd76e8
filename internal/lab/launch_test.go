package lab

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

func TestNewJob(t *testing.T) {
	image := &toolchain.Image{PTX: []byte("ptx"), Cubin: []byte("cubin")}
	image.Record.Kernel, image.Record.Arch = "sdpa", "sm_89"
	image.Record.Launch = toolchain.Launch{Threads: 256, QueryRows: 32, DynamicSharedBytes: 1024}
	in := tensor.Draw(tensor.Shape{Batch: 2, Heads: 3, SeqQ: 33, SeqK: 7, HeadDim: 64, Causal: true}, 5, tensor.Options{})
	job := newJob(image, device.Facts{Arch: "sm_89"}, in)

	if string(job.Image) != "cubin" || job.Entry != "sdpa" || job.DynamicSharedBytes != 1024 {
		t.Errorf("image %s, entry %s, %d bytes", job.Image, job.Entry, job.DynamicSharedBytes)
	}
	// 33 rows are two tiles of 32, for each of six heads.
	if diff := cmp.Diff([2][3]int{{2, 6, 1}, {256, 1, 1}}, [2][3]int{job.Grid, job.Block}); diff != "" {
		t.Errorf("grid and block:\n%s", diff)
	}
	for i, want := range [][]byte{in.Q.Codes, in.K.Codes, in.V.Codes} {
		if !bytes.Equal(job.Args[i].Input, want) {
			t.Errorf("argument %d is not the codes of its tensor", i)
		}
	}
	if len(job.Args[0].Input) != 6*33*64 || len(job.Args[1].Input) != 6*7*64 || job.Args[3].Output != 2*6*33*64 {
		t.Errorf("q has %d bytes, k %d, o %d", len(job.Args[0].Input), len(job.Args[1].Input), job.Args[3].Output)
	}
	for i, want := range [][]float32{in.Q.Descale, in.K.Descale, in.V.Descale} {
		var bytes []byte
		for _, factor := range want {
			bytes = append(bytes, device.Float32(factor).Scalar...)
		}
		if diff := cmp.Diff(device.In(bytes), job.Args[4+i]); diff != "" || len(bytes) != 24 {
			t.Errorf("descale factors %d:\n%s", i, diff)
		}
	}
	scalars := [][]byte{{6, 0, 0, 0}, {33, 0, 0, 0}, {7, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0x3E}} // the last is 0.125
	for i, want := range scalars {
		if diff := cmp.Diff(device.Arg{Scalar: want}, job.Args[7+i]); diff != "" {
			t.Errorf("argument %d:\n%s", 7+i, diff)
		}
	}
	if len(job.Args) != 12 {
		t.Errorf("%d arguments", len(job.Args))
	}
	plain := tensor.Draw(tensor.Shape{Batch: 1, Heads: 1, SeqQ: 32, SeqK: 32, HeadDim: 64}, 5, tensor.Options{})
	job = newJob(image, device.Facts{Arch: "sm_89"}, plain)
	if job.Grid[0] != 1 || !bytes.Equal(job.Args[10].Scalar, []byte{0, 0, 0, 0}) {
		t.Errorf("32 rows without a mask: grid %v, causal %v", job.Grid, job.Args[10].Scalar)
	}
}

func TestGrid(t *testing.T) {
	check := func(what string, launch toolchain.Launch, batch, heads, rows, multiprocessors int, want [3]int) {
		t.Helper()
		shape := tensor.Shape{Batch: batch, Heads: heads, SeqQ: rows, SeqK: rows, HeadDim: 64}
		if got := grid(launch, shape, device.Facts{Multiprocessors: multiprocessors}); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	one, three := toolchain.Launch{QueryRows: 32}, toolchain.Launch{QueryRows: 32, BlocksPerMultiprocessor: 3}
	check("as many heads as one dimension takes", one, 1, 65535, 32, 1, [3]int{1, 65535, 1})
	check("one more goes into another", one, 2, 32768, 64, 1, [3]int{2, 32768, 2})
	check("heads that cannot be shared out evenly leave blocks over", one, 1, 65537, 32, 1, [3]int{1, 32769, 2})
	check("blocks that stay, as many as fit", three, 2, 8, 512, 10, [3]int{30, 1, 1})
	check("blocks that stay, no more than tiles", three, 2, 8, 32, 10, [3]int{16, 1, 1})
	check("blocks that stay, on a device that does not say its size", three, 2, 8, 32, 0, [3]int{3, 1, 1})
}

func TestWhatADeviceRuns(t *testing.T) {
	for _, test := range []struct {
		cubin, device, want string
	}{
		{"cubin", "sm_89", "cubin"},
		{"cubin", "sm_90", "ptx"}, // another chip: the driver compiles
		{"", "sm_89", "ptx"},      // shipped
	} {
		image := &toolchain.Image{PTX: []byte("ptx")}
		image.Record.Arch = "sm_89"
		if test.cubin != "" {
			image.Cubin = []byte(test.cubin)
		}
		facts := device.Facts{Arch: test.device}
		if got := string(loadable(image, facts)); got != test.want || string(ranAs(image, facts)) != test.want {
			t.Errorf("with cubin %q on %s it loads %s as %s, want %s", test.cubin, test.device, got, ranAs(image, facts), test.want)
		}
	}
}
