package exec_test

import (
	"context"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"attune/internal/exec"
	"attune/internal/finding"
)

// TestServe runs a program that is started elsewhere, twice, on one server.
func TestServe(t *testing.T) {
	t.Parallel()
	program, library := build(t, "outside.cu")
	ctx, stop := context.WithCancel(t.Context())
	o := exec.Options{Arch: "sm_90a", Library: library, Memory: 1 << 30, Checks: true}
	outcome, err := exec.Serve(ctx, o, func(environment map[string]string) error {
		defer stop()
		if !strings.HasPrefix(environment["LD_LIBRARY_PATH"], library) {
			t.Errorf("%v", environment)
		}
		for range 2 {
			cmd := osexec.CommandContext(t.Context(), program)
			cmd.Env = os.Environ()
			for name, value := range environment {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "0 wrong") {
				t.Errorf("%v: %s", err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Launches != 2 || len(outcome.Findings) != 3 || outcome.Findings[0].LaunchesIn != 2 || outcome.Findings[0].Kind != finding.OutOfBounds {
		t.Errorf("%+v", outcome)
	}
}
