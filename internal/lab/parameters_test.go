package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	simdevice "attune/internal/device/sim"
	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/toolchain"
)

func TestCheckParameters(t *testing.T) {
	t.Parallel()
	const pointers, integers = ".u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f, .param .u64 g", ".u32 h, .param .u32 i, .param .u32 j, .param .u32 k"
	check := func(entry, params, want string) {
		t.Helper()
		text := fmt.Sprintf(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry %s(.param %s)\n{\n\tret;\n}\n", entry, params)
		image := &toolchain.Image{PTX: []byte(text), Record: toolchain.Record{Kernel: "mine", Variant: "only"}}
		err := checkParameters(attention.New(nil), problem.Build{Image: image})
		var broken *toolchain.SourceError
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", params, err)
		case want != "" && (!errors.As(err, &broken) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", params, err, want)
		}
	}
	ok := strings.Join([]string{pointers, integers, ".u32 causal, .param .f32 scale"}, ", .param ")
	check("mine", ok, "")
	check("mine", ok+", .param .u32 window", "build only for : parameter 13 (window, 4 bytes) gets no argument; the launch passes 13")
	check("mine", pointers+", .param "+integers+", .param .u32 causal",
		"it has 12 parameters; the launch passes 13, and softmax_scale (float, 4 bytes) has no parameter; declare its parameters in this order: q, k, v, o, descale_q")
	check("mine", pointers+", .param .u64 heads", "parameter 7 (heads) has 8 bytes; the launch passes heads (int, 4 bytes)")
	check("mine", strings.Replace(ok, ".f32", ".u32", 1), "parameter 12 (scale) is no float; the launch passes softmax_scale (float, 4 bytes)")
	check("mine", strings.Replace(ok, ".u32 causal", ".f32 causal", 1), "parameter 11 (causal) is a float; the launch passes causal (int, 4 bytes)")
	check("other", ok, "the source has no entry function mine")
	if err := checkParameters(attention.New(nil), problem.Build{Image: &toolchain.Image{PTX: []byte("not PTX")}}); err != nil {
		t.Errorf("PTX that only the device can refuse: %v", err)
	}
}

// A kernel whose parameters do not match the launch fails its resource gate, and the next variant runs.
func TestMismatchedParametersAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSimulated(t, simdevice.Options{Checks: true})
	r := s.request("mismatched", "good")
	r.Shapes, r.Seeds = shapes(t, "1x1x4x64"), []uint64{0}
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	if len(s.runs) != 2 || len(s.recorded()) != 2 {
		t.Fatalf("recorded: %v", s.recorded())
	}
	bad, good := s.runs[0], s.runs[1]
	if bad.Gates.Resources != gate.Fail || !strings.Contains(bad.Failure, "parameter 13 (broken_param_13, 4 bytes) gets no argument") {
		t.Errorf("resources %s: %s", bad.Gates.Resources, bad.Failure)
	}
	if good.Gates.Correctness != gate.Pass {
		t.Errorf("the next variant: %+v", good.Gates)
	}
}
