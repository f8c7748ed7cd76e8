package toolchain

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// buildWith builds tiny with a compiler that is a shell script.
func buildWith(t *testing.T, text string) error {
	t.Helper()
	plainEnvironment(t)
	dir := t.TempDir()
	script(t, filepath.Join(dir, "nvcc"), text)
	_, _, err := NewBuilder(tiny(), &Compiler{NVCC: filepath.Join(dir, "nvcc"), Version: "0"}, "").Build(t.Context(), tinyTarget())
	return err
}

// A compiler that prints without end is stopped, and the source is at fault.
func TestEndlessMessages(t *testing.T) {
	err := buildWith(t, "yes 'ada/tiny.cu(1): warning: no'")
	if broken, ok := errors.AsType[*SourceError](err); !ok || !strings.HasPrefix(broken.Problem, "the compiler printed more than 16 MB of messages, which begin with:\nada/tiny.cu(1): warning") || len(broken.Problem) > 2000 {
		t.Errorf("%.300v", err)
	}
}

// A long message is cut, because records and reports repeat it.
func TestLongMessage(t *testing.T) {
	err := buildWith(t, "echo 'ada/tiny.cu(1): error: no'; head -c 5000000 /dev/zero | tr '\\0' x; exit 2")
	refused, ok := errors.AsType[*CompileError](err)
	if !ok || len(refused.Output) > maxKept+100 || !strings.Contains(refused.Output, "... and 4") || refused.Summary() != "ada/tiny.cu:1: no" {
		t.Errorf("%.300v", err)
	}
}

// The processes of a compiler have a limit of memory. The address space bounds one large request.
func TestMemoryLimit(t *testing.T) {
	t.Setenv(memoryVariable, "100M")
	dir := t.TempDir()
	err := buildWith(t, "sleep 0.05; ulimit -v > "+dir+"/limit; (ulimit -v > "+dir+"/child); (head -c 1G /dev/zero | tail -c 1G > /dev/null); exit 1")
	if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != "the compiler needs more than 100 MB of memory for it; ATTUNE_COMPILER_MEMORY=4G allows more" {
		t.Error(err)
	}
	for _, name := range []string{"limit", "child"} {
		if got := strings.TrimSpace(readFile(t, filepath.Join(dir, name))); got != strconv.Itoa(4*100<<10) {
			t.Errorf("%s: %q KB", name, got)
		}
	}
}

// A compiler that computes without end is stopped, with the processes that it has started.
func TestProcessorLimit(t *testing.T) {
	t.Setenv(processorVariable, "300ms")
	err := buildWith(t, "(while true; do :; done); exit 1")
	if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != "the compiler needs more than 300ms of processor time for it; ATTUNE_COMPILER_TIME=10m allows more" {
		t.Error(err)
	}
}

// Limits that are no limits are errors of the user.
func TestLimitsOfTheEnvironment(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{memoryVariable, "4"}, {memoryVariable, "0G"}, {memoryVariable, "-1M"}, {memoryVariable, "4GG"}, {processorVariable, "10"}, {processorVariable, "-1s"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			if l, err := environmentLimits(); err == nil || !strings.HasPrefix(err.Error(), c.name+"="+c.value+": want ") {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
	t.Setenv(memoryVariable, "4G")
	t.Setenv(processorVariable, "10m")
	if l, err := environmentLimits(); err != nil || l.Memory != 4<<30 || l.Processor != 10*time.Minute {
		t.Errorf("%+v, %v", l, err)
	}
}

// A compiler that does not even report its version is not used.
func TestEndlessVersion(t *testing.T) {
	plainEnvironment(t)
	dir := t.TempDir()
	script(t, filepath.Join(dir, "bin", "nvcc"), "yes")
	t.Setenv("CUDA_HOME", dir)
	if _, err := Find(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "does not run: the compiler printed more than 16 MB") {
		t.Error(err)
	}
}

// A compiler that fills the disk is stopped, and the source is at fault.
func TestEndlessFile(t *testing.T) {
	err := buildWith(t, "sleep 0.05; truncate -s 300M image.ptx; exit $?")
	if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != "the compiler writes a file of more than 256 MB for it" {
		t.Error(err)
	}
}
