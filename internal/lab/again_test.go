package lab

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/run"
)

// A run done again asks for the same, says what it reproduces, and holds.
func TestAgain(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	then := s.one(s.request("stage2"))
	request, err := Again(s.Kernel, then, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.runs = nil
	now := s.one(request)
	expect(t, now, merged)
	if now.Reproduces != then.ID || now.Change != "+USE_WMMA_PV=1" || then.Reproduces != "" {
		t.Errorf("it reproduces %q, and the change is %q", now.Reproduces, now.Change)
	}
	now.Asked.Arch = then.Asked.Arch // which is asked for by name now
	if diff := cmp.Diff(then.Asked, now.Asked); diff != "" {
		t.Errorf("(-then +now):\n%s", diff)
	}
	got := run.CompareAgain(then, now)
	if !got.Holds || got.Outputs.Same != len(then.Correctness) || got.Time == nil || got.Time.Low > 1 || got.Time.High < 1 {
		t.Errorf("%+v", got)
	}
	for i := range then.Performance {
		if then.Performance[i].Judged != now.Performance[i].Judged {
			t.Errorf("%s was judged then, or is now", then.Performance[i].Shape)
		}
	}

	// A kernel that answers something else now does not hold.
	s.knows("stage2", behaviour{answers: func(out []byte) { out[0] ^= 1 }})
	s.runs = nil
	if got := run.CompareAgain(then, s.one(request)); got.Holds || got.Outputs.Different != len(then.Correctness) {
		t.Errorf("%+v", got)
	}
}

func TestAgainKeepsToShapes(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	then := s.one(s.request("stage2"))
	request, err := Again(s.Kernel, then, shapes(t, "1x1x33x64:causal", "1x8x512x64"))
	if err != nil || len(request.Shapes) != 1 || request.Shapes[0].String() != "1x1x33x64:causal" || len(request.Judged) != 1 {
		t.Errorf("%+v, %v", request, err)
	}
}

func TestAgainAgainstTheSame(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	s.knows("stage0", behaviour{})
	r := s.request("stage2")
	against := s.variant("stage0")
	r.Against = &against
	then := s.one(r)
	check := func(what string, change func(*run.Run), want string) {
		t.Helper()
		changed := *then
		change(&changed)
		request, err := Again(s.Kernel, &changed, nil)
		got := ""
		if request.Against != nil {
			got = request.Against.String()
		}
		if err != nil || got != want {
			t.Errorf("%s: against %q, want %q; %v", what, got, want, err)
		}
	}
	check("asked for", func(*run.Run) {}, "stage0")
	check("its own parent", func(r *run.Run) { r.Parent, r.Asked.Against = "stage1", "" }, "")
	check("its parent of then", func(r *run.Run) { r.Asked.Against = "" }, "stage0")
	check("none", func(r *run.Run) { r.Variant, r.Parent, r.Asked.Against = "stage0", "", "" }, "")
}

func TestAgainRefuses(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	then := s.one(s.request("stage2"))
	check := func(change func(*run.Run), want string) {
		t.Helper()
		changed := *then
		change(&changed)
		_, err := Again(s.Kernel, &changed, nil)
		var request RequestError
		if !errors.As(err, &request) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	check(func(r *run.Run) { r.Kernel = "gemm" }, "it is of kernel gemm, and the one at hand is sdpa")
	check(func(r *run.Run) { r.Variant = "stage99" }, "stage99 is no variant of today's spec")
	check(func(r *run.Run) { r.Parent = "stage99" }, "its parent stage99 is no variant of today's spec")
	check(func(r *run.Run) { r.Asked.Shapes = []string{"1x2"} }, "want BxHxSxD")
	check(func(r *run.Run) { r.Asked.Shapes = nil }, "none of the shapes")
	check(func(r *run.Run) { r.Arch = "sm_70" }, `not for "sm_70"`)
}
