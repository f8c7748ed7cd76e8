package toolchain

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// The processes of a compiler have a limit of memory.
func TestMemoryLimit(t *testing.T) {
	dir := t.TempDir()
	err := buildWith(t, "sleep 0.05; ulimit -v > "+dir+"/limit; (ulimit -v > "+dir+"/child); exit 1")
	if err == nil {
		t.Error("the build succeeded")
	}
	for _, name := range []string{"limit", "child"} {
		if got := strings.TrimSpace(readFile(t, filepath.Join(dir, name))); got != strconv.Itoa(maxMemory>>10) {
			t.Errorf("%s: %q KB", name, got)
		}
	}
}

// A compiler that fills the disk is stopped, and the source is at fault.
func TestEndlessFile(t *testing.T) {
	err := buildWith(t, "sleep 0.05; truncate -s 300M image.ptx; exit $?")
	if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != "the compiler writes a file of more than 256 MB for it" {
		t.Error(err)
	}
}

// TestGuarded is the process that TestGuard kills: it runs a compiler that does not end.
func TestGuarded(t *testing.T) {
	program := os.Getenv("ATTUNE_TEST_GUARDED")
	if program == "" {
		t.Skip("is run by TestGuard")
	}
	_, _ = supervised(t.Context(), exec.CommandContext(t.Context(), program))
}

// A compiler, and what it has started, end with this process even if that is killed.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "nvcc"), "sleep 60 &\necho $! > "+dir+"/pid.new; mv "+dir+"/pid.new "+dir+"/pid; wait")
	cmd := exec.Command(os.Args[0], "-test.run=^TestGuarded$")
	cmd.Env = append(os.Environ(), "ATTUNE_TEST_GUARDED="+filepath.Join(dir, "nvcc"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for end := time.Now().Add(10 * time.Second); pid == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	time.Sleep(100 * time.Millisecond) // the guard starts behind the compiler
	if err := cmd.Process.Kill(); err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	_ = cmd.Wait() // it was killed
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the compiler's child runs on")
		}
	}
}
