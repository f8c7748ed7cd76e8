package lab

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/run"
)

// A repeated run has the same request, names the run that it reproduces, and holds.
func TestReproduceRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	recorded := s.runOne(s.request("stage2"))
	request, err := ReproduceRequest(s.Kernel, recorded, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.runs = nil
	repeated := s.runOne(request)
	expectOutcome(t, repeated, merged)
	if repeated.Reproduces != recorded.ID || repeated.Change != "+USE_WMMA_PV=1" || recorded.Reproduces != "" {
		t.Errorf("it reproduces %q, and the change is %q", repeated.Reproduces, repeated.Change)
	}
	repeated.Requested.Arch = recorded.Requested.Arch // which the repeated request names
	if diff := cmp.Diff(recorded.Requested, repeated.Requested); diff != "" {
		t.Errorf("(-recorded +repeated):\n%s", diff)
	}
	got := run.CompareRepeated(recorded, repeated)
	if !got.Holds || got.Outputs.Same != len(recorded.Correctness) || got.Time == nil || got.Time.Low > 1 || got.Time.High < 1 {
		t.Errorf("%+v", got)
	}
	for i := range recorded.Performance {
		if recorded.Performance[i].Benchmark != repeated.Performance[i].Benchmark {
			t.Errorf("%s is a benchmark shape in only one of the runs", recorded.Performance[i].Shape)
		}
	}

	// A kernel with other outputs does not hold.
	s.declare("stage2", behaviour{Output: func(out []byte) { out[0] ^= 1 }})
	s.runs = nil
	if got := run.CompareRepeated(recorded, s.runOne(request)); got.Holds || got.Outputs.Different != len(recorded.Correctness) {
		t.Errorf("%+v", got)
	}
}

func TestReproduceSomeShapes(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	recorded := s.runOne(s.request("stage2"))
	request, err := ReproduceRequest(s.Kernel, recorded, shapes(t, "1x1x33x64:causal", "1x8x512x64"))
	if err != nil || len(request.Shapes) != 1 || request.Shapes[0].String() != "1x1x33x64:causal" || len(request.Benchmark) != 1 {
		t.Errorf("%+v, %v", request, err)
	}
}

func TestReproduceAgainstTheSameParent(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	s.declare("stage0", behaviour{})
	r := s.request("stage2")
	against := s.variant("stage0")
	r.Against = &against
	recorded := s.runOne(r)
	check := func(what string, change func(*run.Run), want string) {
		t.Helper()
		changed := *recorded
		change(&changed)
		request, err := ReproduceRequest(s.Kernel, &changed, nil)
		got := ""
		if request.Against != nil {
			got = request.Against.String()
		}
		if err != nil || got != want {
			t.Errorf("%s: against %q, want %q; %v", what, got, want, err)
		}
	}
	check("requested", func(*run.Run) {}, "stage0")
	check("its own parent", func(r *run.Run) { r.Parent, r.Requested.Against = "stage1", "" }, "")
	check("a former parent", func(r *run.Run) { r.Requested.Against = "" }, "stage0")
	check("none", func(r *run.Run) { r.Variant, r.Parent, r.Requested.Against = "stage0", "", "" }, "")
}

func TestReproduceRefuses(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	recorded := s.runOne(s.request("stage2"))
	check := func(change func(*run.Run), want string) {
		t.Helper()
		changed := *recorded
		change(&changed)
		_, err := ReproduceRequest(s.Kernel, &changed, nil)
		var request RequestError
		if !errors.As(err, &request) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	check(func(r *run.Run) { r.Kernel = "gemm" }, "it is of kernel gemm, and the present one is sdpa")
	check(func(r *run.Run) { r.Variant = "stage99" }, "stage99 is not a variant of the present spec")
	check(func(r *run.Run) { r.Parent = "stage99" }, "its parent stage99 is not a variant of the present spec")
	check(func(r *run.Run) { r.Requested.Shapes = []string{"1x2"} }, "want BxHxSxD")
	check(func(r *run.Run) { r.Requested.Shapes = nil }, "none of the requested shapes")
	check(func(r *run.Run) { r.Arch = "sm_70" }, `not for "sm_70"`)
}
