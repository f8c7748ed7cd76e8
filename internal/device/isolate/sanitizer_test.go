//go:build linux

package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/finding"
)

// fakeSanitizer accepts the options of compute-sanitizer that attune uses, runs the program and
// ends in the way that SANITIZER_ENDS names.
const fakeSanitizer = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	--tool) tool=$2 ;;
	--error-exitcode) seen=$2 ;;
	--log-file) log=$2 ;;
	--*) echo "unknown option $1" >&2; exit 1 ;;
	*) break ;;
	esac
	shift 2
done
case $SANITIZER_ENDS in
refusing) echo "========= Error: no such device" >"$log"; exit 1 ;;
esac
"$@"
code=$?
case $SANITIZER_ENDS in
silent) exit 3 ;;
esac
shift 2
echo "========= $tool of $*" >"$log"
case $SANITIZER_ENDS in
findings) exit $seen ;;
error) exit 3 ;;
esac
exit $code
`

// sanitized starts a device under the fake tool.
func sanitized(t *testing.T, ends, kind string) (*Sanitized, error) {
	t.Helper()
	folder := t.TempDir()
	childtest.Program(t, filepath.Join(folder, "compute-sanitizer"), fakeSanitizer)
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("SANITIZER_ENDS", ends)
	t.Setenv("TMPDIR", t.TempDir())
	s, err := StartSanitized(t.Context(), Options{Command: command(t, kind), Limit: long}, "racecheck")
	if s != nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func TestSanitizer(t *testing.T) {
	for _, c := range []struct {
		ends string
		want []finding.Finding
		err  string
	}{
		{"clean", nil, ""},
		{"findings", []finding.Finding{finding.New("racecheck", "========= racecheck of serve")}, ""},
		{"error", nil, "compute-sanitizer ended with code 3: ========= racecheck of serve"},
		{"silent", nil, "read the findings of racecheck: compute-sanitizer ended with code 3: open "},
	} {
		t.Run(c.ends, func(t *testing.T) {
			s, err := sanitized(t, c.ends, "serve")
			if err != nil {
				t.Fatal(err)
			}
			if s.Tool() != "racecheck" || s.Facts().Kind != "test" {
				t.Errorf("tool %q, facts %v", s.Tool(), s.Facts())
			}
			if got := outputOf(t, s, "increment", 1); got != 2 {
				t.Errorf("the output is %d", got)
			}
			got, err := s.Findings()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("got the error %v; want %q", err, c.err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			expectNoFolders(t)
		})
	}
}

func expectNoFolders(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("not deleted: %v, %v", left, err)
	}
}

// The tool reports findings also for a kernel that ended in a fault.
func TestSanitizerAfterFault(t *testing.T) {
	s, err := sanitized(t, "findings", "serve")
	if err != nil {
		t.Fatal(err)
	}
	var fault *device.Fault
	if _, err := s.Run(t.Context(), newJob("illegal address", 0)); !errors.As(err, &fault) {
		t.Errorf("got %v; want a fault", err)
	}
	got, err := s.Findings()
	if err != nil || len(got) != 1 {
		t.Errorf("got %v, %v; want the one finding", got, err)
	}
}

// If the child was killed or has crashed, the caller knows it already and the tool adds no finding.
func TestSanitizerOfLostChild(t *testing.T) {
	s, err := sanitized(t, "clean", "serve")
	if err != nil {
		t.Fatal(err)
	}
	pid := outputOf(t, s, "pid", 0)
	s.limit, s.launch = 300*time.Millisecond, 300*time.Millisecond
	if pid == s.cmd.Process.Pid {
		t.Fatal("no tool wraps the child")
	}
	var timeout *device.Timeout
	if _, err := s.Run(t.Context(), newJob("hang", 0)); !errors.As(err, &timeout) {
		t.Errorf("got %v; want a timeout", err)
	}
	eventually(t, "the child inside the tool is gone", func() bool { return !process(pid) })
	if got, err := s.Findings(); got != nil || err != nil {
		t.Errorf("got %v, %v; want no findings", got, err)
	}

	s, err = sanitized(t, "clean", "serve")
	if err != nil {
		t.Fatal(err)
	}
	var crash *device.Crash
	if _, err := s.Run(t.Context(), newJob("exit", 0)); !errors.As(err, &crash) || crash.How != "exit status 7" {
		t.Errorf("got %v; want a crash", err)
	}
	if got, err := s.Findings(); got != nil || err != nil {
		t.Errorf("got %v, %v; want no findings", got, err)
	}
}

func TestSanitizerDoesNotStart(t *testing.T) {
	const died = "open the device: the process that ran the kernel died: "
	for _, c := range []struct{ ends, kind, want string }{
		{"refusing", "serve", died + "exit status 1; compute-sanitizer log: ========= Error: no such device"},
		{"silent", "dies", died + "exit status 3"},
		{"clean", "no device", "no GPU: the test has none"},
	} {
		s, err := sanitized(t, c.ends, c.kind)
		if err == nil || err.Error() != c.want || s != nil {
			t.Errorf("%s, %s: got %v; want %q", c.ends, c.kind, err, c.want)
		}
		if errors.Is(err, device.ErrNoDevice) != (c.kind == "no device") {
			t.Errorf("%s, %s: ErrNoDevice is %t", c.ends, c.kind, errors.Is(err, device.ErrNoDevice))
		}
		expectNoFolders(t)
	}
}

func TestNoSanitizer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartSanitized(t.Context(), Options{Command: command(t, "serve"), Limit: long}, "memcheck")
	want := "compute-sanitizer is not in PATH; it is part of the CUDA toolkit"
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %q", err, want)
	}
}

func TestNoFolderForTheLog(t *testing.T) {
	folder := t.TempDir()
	childtest.Program(t, filepath.Join(folder, "compute-sanitizer"), fakeSanitizer)
	t.Setenv("PATH", folder)
	t.Setenv("TMPDIR", filepath.Join(folder, "none"))
	_, err := StartSanitized(t.Context(), Options{Command: command(t, "serve"), Limit: long}, "memcheck")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v; want an error about the missing folder", err)
	}
}
