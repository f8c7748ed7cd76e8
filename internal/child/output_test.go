//go:build linux

package child

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A program is answered for within the time limit, whatever it leaves behind with its output.
func TestOutput(t *testing.T) {
	run := func(ctx context.Context, limit time.Duration, text string) (string, error) {
		return Output(ctx, limit, "/bin/sh", "-c", text)
	}
	if out, err := run(t.Context(), time.Minute, "echo noise >&2; echo output; setsid sleep 20 &"); err != nil || out != "output\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err := run(t.Context(), time.Minute, "echo no luck >&2; exit 3")
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Error() != "exit status 3" || string(exit.Stderr) != "no luck\n" {
		t.Error(err)
	}
	start := time.Now()
	if _, err := run(t.Context(), 100*time.Millisecond, "setsid sleep 20 & sleep 20"); err == nil || err.Error() != "did not answer within 100ms" {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := run(ctx, time.Minute, "setsid sleep 20 & sleep 20"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if out, err := run(t.Context(), time.Minute, "head -c 17000000 /dev/zero"); err != nil || out != strings.Repeat("\x00", maxOutput) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
