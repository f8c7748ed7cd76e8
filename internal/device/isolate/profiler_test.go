//go:build linux

package isolate

import (
	"errors"
	"path/filepath"
	"testing"

	"attune/internal/child/childtest"
	"attune/internal/device"
)

// fakeProfiler accepts the options of ncu that these tests pass, runs the program and ends in the
// way that PROFILER_ENDS names.
const fakeProfiler = `#!/bin/sh
[ "$1" = --log-file ] || exit 9
log=$2
[ "$3" = --set ] && [ "$4" = full ] || exit 9
shift 4
case $PROFILER_ENDS in
refusing) echo "==ERROR== no such metric" >"$log"; exit 1 ;;
esac
"$@"
code=$?
case $PROFILER_ENDS in
silent) exit 3 ;;
esac
echo "==PROF== Report: here" >"$log"
exit $code
`

func profiled(t *testing.T, ends, kind string) (*Profiled, error) {
	t.Helper()
	folder := t.TempDir()
	ncu := filepath.Join(folder, "ncu")
	childtest.Program(t, ncu, fakeProfiler)
	t.Setenv("PROFILER_ENDS", ends)
	p, err := StartProfiled(t.Context(), Options{Command: command(t, kind), Limit: long}, ncu, []string{"--set", "full"}, filepath.Join(folder, "log"))
	if p != nil {
		t.Cleanup(func() { p.Close() })
	}
	return p, err
}

func TestProfiler(t *testing.T) {
	for _, c := range []struct {
		ends, log string
		code      int
	}{
		{"well", "==PROF== Report: here", 0},
		{"silent", "", 3},
	} {
		p, err := profiled(t, c.ends, "serve")
		if err != nil {
			t.Fatal(err)
		}
		if got := outputOf(t, p, "increment", 1); got != 2 {
			t.Errorf("%s: the output is %d", c.ends, got)
		}
		if pid := outputOf(t, p, "pid", 0); pid == p.cmd.Process.Pid {
			t.Errorf("%s: no profiler wraps the child", c.ends)
		}
		code, err := p.Finish()
		if err != nil || code != c.code || p.Log() != c.log {
			t.Errorf("%s: code %d, log %q, %v; want %d and %q", c.ends, code, p.Log(), err, c.code, c.log)
		}
	}
}

func TestProfilerDoesNotStart(t *testing.T) {
	const died = "open the device: the process that ran the kernel died: "
	for _, c := range []struct{ ends, kind, want string }{
		{"refusing", "serve", died + "exit status 1; ncu log: ==ERROR== no such metric"},
		{"silent", "dies", died + "exit status 3"},
		{"well", "no device", "no GPU: the test has none"},
	} {
		p, err := profiled(t, c.ends, c.kind)
		if err == nil || err.Error() != c.want || p != nil {
			t.Errorf("%s, %s: got %v; want %q", c.ends, c.kind, err, c.want)
		}
		if errors.Is(err, device.ErrNoDevice) != (c.kind == "no device") {
			t.Errorf("%s, %s: ErrNoDevice is %t", c.ends, c.kind, errors.Is(err, device.ErrNoDevice))
		}
	}
}
