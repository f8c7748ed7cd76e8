package exec

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun checks programs that never open the driver, and commands that do not start.
func TestRun(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/elsewhere")
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command      []string
		output       string
		exit         int
		signal, fail string
	}{
		{[]string{"sh", "-c", "echo $LD_LIBRARY_PATH $ATTUNE_EXEC_NVCC; exit 4"}, "/lib:/elsewhere /bin/nvcc\n", 4, "", ""},
		{[]string{"sh", "-c", "kill -9 $$"}, "", 128 + 9, "killed", ""},
		{[]string{"true"}, "", 0, "", ""},
		{[]string{"no-such-program"}, "", 0, "", "start the program: "},
		{[]string{broken}, "", 0, "", "start the program: "},
	} {
		var out bytes.Buffer
		o := Options{Library: "/lib", Compiler: "/bin/nvcc", Command: func(cmd *osexec.Cmd) { cmd.Stdout = &out }}
		outcome, err := Run(t.Context(), o, c.command)
		if failed := err != nil; failed != (c.fail != "") || failed && !strings.HasPrefix(err.Error(), c.fail) {
			t.Errorf("%q: %v", c.command, err)
		}
		if out.String() != c.output || outcome.Exit != c.exit || outcome.Signal != c.signal {
			t.Errorf("%q: %+v, printed %q", c.command, outcome, out.String())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, Options{}, []string{"sleep", "60"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is cancelled: %v", err)
	}
}

// TestNoFolder checks that a run without a place for its socket says so.
func TestNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if _, err := Run(t.Context(), Options{}, []string{"true"}); err == nil {
		t.Error("a program runs")
	}
	if _, err := Serve(t.Context(), Options{}, nil); err == nil {
		t.Error("a server starts")
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 30)) // an address of a socket has 108 bytes
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	if _, err := Run(t.Context(), Options{}, []string{"true"}); err == nil {
		t.Error("a program runs whose socket has a long name")
	}
	if left, _ := os.ReadDir(long); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestServeFails checks that a server ends whose user is not ready, and one whose client leaves at once.
func TestServeFails(t *testing.T) {
	t.Parallel()
	failure := errors.New("not ready")
	if _, err := Serve(t.Context(), Options{}, func(map[string]string) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	outcome, err := Serve(ctx, Options{Memory: 1 << 20}, func(environment map[string]string) error {
		defer stop()
		for _, request := range [][]any{nil, {requestMemory, 0}, {requestMemory, maxRequest + 1}} {
			c, err := net.Dial("unix", environment[socketVariable])
			if err != nil {
				return err
			}
			if _, err := c.Write(body(request)); err != nil {
				return err
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || outcome.Launches != 0 {
		t.Errorf("%+v, %v", outcome, err)
	}
}
