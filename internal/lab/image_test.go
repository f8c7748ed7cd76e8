package lab

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/form"
	"attune/internal/half"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// A kernel with clusters and tensor maps runs from its source to an output of the simulator.
func TestTensorMapsOnTheSimulator(t *testing.T) {
	t.Parallel()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	folder, mapped := fstest.MapFS{}, os.DirFS("testdata/mapped")
	for name, from := range map[string]fs.FS{"kernel.toml": mapped, "mapped.cu": mapped, "include/launch.cuh": kernels.SDPA()} {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			t.Fatal(err)
		}
		folder[name] = &fstest.MapFile{Data: text}
	}
	s := newSetupOf(t, folder, c, cacheDir)
	for stage, blocks := range map[string][3]int{"tiles": {4, 2, 1}, "persistent": {2, 1, 1}} {
		image, _, err := s.Builder.Build(t.Context(), form.Target(s.Kernel, s.variant(stage), "sm_90a"))
		if err != nil {
			t.Fatal(err)
		}
		// The third tile is partial, and the fourth only completes the cluster.
		in := tensor.Draw(tensor.Shape{Batch: 1, Heads: 2, SeqQ: 40, SeqK: 5, HeadDim: 64}, 0, tensor.Options{})
		d := simdevice.Open(simdevice.Options{Schedules: 3, Checks: true, Limit: time.Minute})
		job := attention.Job(problem.Build{Image: image, Code: image.PTX}, d.Facts(), in)
		if job.Grid != blocks {
			t.Errorf("%s: a grid of %v, want %v", stage, job.Grid, blocks)
		}
		outcome, err := d.Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, code := range in.Q.Codes {
			want = binary.LittleEndian.AppendUint16(want, uint16(half.Float16FromFloat32(float32(code))))
		}
		if len(outcome.Findings) > 0 || !bytes.Equal(outcome.Outputs[0], want) {
			t.Errorf("%s: findings %v; o is q: %t", stage, outcome.Findings, bytes.Equal(outcome.Outputs[0], want))
		}
	}
}

func TestLoadable(t *testing.T) {
	t.Parallel()
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
		if form, code := loadable(image, facts); string(code) != test.want || form != test.want {
			t.Errorf("with cubin %q on %s it loads %s as %s, want %s", test.cubin, test.device, code, form, test.want)
		}
	}
}
