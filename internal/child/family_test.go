//go:build linux

package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"attune/internal/child/childtest"
)

// shell starts a shell script within limits.
func shell(t *testing.T, text string, l Limits) *Family {
	t.Helper()
	f, err := StartFamily(exec.Command("/bin/sh", "-c", text), l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// escapes are ways of a process to leave the program that has started it.
var escapes = map[string]string{
	"child":       "RUN & ",
	"session":     "setsid RUN & ",
	"orphan":      "setsid sh -c 'RUN & exit' & ",
	"environment": "setsid env -i PATH=$PATH sh -c '(trap \"\" HUP TERM; RUN) & exit' & ",
}

// A process that has left its group, its session and its parent has ended when the program has, all the
// same.
func TestEscapes(t *testing.T) {
	for name, start := range escapes {
		for how, end := range map[string]string{"exits": "exit 3", "is killed": "sleep 60", "dies": "kill -9 $$"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				file := filepath.Join(dir, "pid")
				childtest.Program(t, filepath.Join(dir, "run"), "#!/bin/sh\necho $$ > "+file+".new; mv "+file+".new "+file+"; exec sleep 60\n")
				f := shell(t, strings.ReplaceAll(start, "RUN", dir+"/run")+"while [ ! -e "+file+" ]; do sleep 0.05; done; "+end, Limits{})
				pid := awaitPID(t, file)
				if how == "is killed" {
					f.Kill()
				}
				err := f.Wait()
				if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Status.Signaled() == (how == "exits") {
					t.Error(err)
				}
				if !zombie(pid) {
					t.Error("it outlived the program")
				}
			})
		}
	}
}

// awaitPID waits for a file with a process ID.
func awaitPID(t *testing.T, path string) int {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("there is no %s", path)
	return 0
}

func TestExits(t *testing.T) {
	for text, want := range map[string]string{
		"exit 0": "", "exit 7": "exit status 7", "kill -SEGV $$": "signal: segmentation fault",
		"sleep 0.1; kill -KILL $PPID; sleep 60":   "its supervisor was killed",
		"kill -STOP $PPID; kill -CONT $PPID":      "",
		"kill -TERM $PPID; kill -INT $PPID; :":    "",
		"trap '' TERM HUP; setsid sleep 60 & :":   "",
		"read x; ulimit -c | grep -qx 0; exit $?": "",
	} {
		got := ""
		if err := shell(t, text, Limits{}).Wait(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A program that kills its supervisor before that has reported the start ends with it.
func TestEarlyKill(t *testing.T) {
	for range 20 {
		file := filepath.Join(t.TempDir(), "pid")
		f, err := StartFamily(exec.Command("/bin/sh", "-c", "echo $$ > "+file+".new; mv "+file+".new "+file+"; kill -KILL $PPID; sleep 60"), Limits{})
		if err == nil {
			err = f.Wait()
		}
		if err == nil {
			t.Fatal("no error")
		}
		pid := awaitPID(t, file)
		for end := time.Now().Add(5 * time.Second); !zombie(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the program runs on")
			}
		}
	}
}

// A supervisor that cannot end its family is ended by this process, with all processes below it.
func TestStuckSupervisor(t *testing.T) {
	defer func(limit time.Duration) { killLimit = limit }(killLimit)
	killLimit = 100 * time.Millisecond
	for name, stick := range map[string]string{
		"stopped":    "while kill -STOP $PPID; do :; done &",
		"pipes kept": "exec 8<>/proc/$PPID/fd/3 9<>/proc/$PPID/fd/4;",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			f := shell(t, stick+" setsid sleep 20 & echo $! > "+file+".new; mv "+file+".new "+file+"; sleep 20", Limits{})
			pid := awaitPID(t, file)
			started := time.Now()
			f.Kill()
			err := f.Wait()
			if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Status.Signal() != syscall.SIGKILL {
				t.Error(err)
			}
			if took := time.Since(started); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			for end := time.Now().Add(5 * time.Second); !zombie(pid); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("a process runs on")
				}
			}
		})
	}
}

// A process that has left the program and kills the supervisor ends all the same. A process that os/exec
// has started is left alone.
func TestKilledSupervisor(t *testing.T) {
	own := exec.Command("sleep", "20")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	f := shell(t, "setsid sh -c \"(setsid sleep 20 & echo \\$! > "+file+".new; mv "+file+".new "+file+"; kill -KILL $PPID; sleep 20) & \"; sleep 20", Limits{})
	pid := awaitPID(t, file)
	if err := f.Wait(); !errors.Is(err, errSupervisorKilled) {
		t.Error(err)
	}
	if !zombie(pid) {
		t.Error("a process outlived its supervisor")
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if left := orphans(); len(left) > 0 {
		t.Errorf("orphans %d", left)
	}
	if zombie(own.Process.Pid) {
		t.Error("a process of os/exec was killed")
	}
	if err := own.Process.Kill(); err != nil {
		t.Error(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](own.Wait()); !ok {
		t.Error("a process of os/exec was collected")
	}
}

// A supervisor that the program stops before it has reported the start is continued.
func TestEarlyStop(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	f := &Family{supervisor: exec.Command("/bin/sh", "-c", `kill -STOP $$; printf '\0\0\0\0\7\0\0\0' >&3`)}
	f.supervisor.ExtraFiles = []*os.File{in}
	if err := f.supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	rescue := time.AfterFunc(5*time.Second, f.resume)
	if first, err := f.firstMessage(out); err != nil || first.PID != 7 || !rescue.Stop() {
		t.Errorf("%v, %v", first, err)
	}
	if err := f.supervisor.Wait(); err != nil {
		t.Error(err)
	}
}

// A program that does not start is an error of the start, as that of os/exec.
func TestNoProgram(t *testing.T) {
	_, err := StartFamily(exec.Command("/no/program"), Limits{})
	if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Path != "/no/program" || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := StartFamily(exec.Command("no-program-of-this-name"), Limits{}); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

// The memory of all processes counts: of children, of orphans, and what is shared.
func TestMemoryOfAFamily(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	const grow = `
import mmap, os, time
parts = []
def shared():
    part = mmap.mmap(-1, 4 << 20)
    part.write(b"x" * (4 << 20))
    return part
for i in range(100):
    parts.append(PART)
    time.sleep(0.02)  # slower than a loaded machine looks
time.sleep(60)
`
	for name, text := range map[string]string{
		"plain":    strings.ReplaceAll(grow, "PART", "bytearray(os.urandom(1 << 20) * 4)"),
		"shared":   strings.ReplaceAll(grow, "PART", "shared()"),
		"children": "import os\nfor i in range(3): os.fork()\n" + strings.ReplaceAll(grow, "PART", "bytearray(b'x' * (1 << 20))"),
		"page tables": `
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size = 100 << 30
at = libc.mmap(None, size, 1, 0x4022, -1, 0)  # private, anonymous, not reserved
libc.madvise(at, size, 15)  # no huge pages
for i in range(0, size, 2 << 20):
    ctypes.c_char.from_address(at + i).value  # the page of zeros
time.sleep(60)
`,
		"orphans": "import os, time\nfor i in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    break\nelse:\n  time.sleep(60)\nif os.fork(): os._exit(0)\n" + strings.ReplaceAll(grow, "PART", "bytearray(b'x' * (1 << 20))"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := StartFamily(exec.Command(python, "-c", text), Limits{Memory: 150 << 20})
			if err != nil {
				t.Fatal(err)
			}
			err = f.Wait()
			if limit, ok := errors.AsType[*LimitError](err); !ok || limit.Error() != "needs more than 150 MB of memory" {
				t.Error(err)
			}
			if f.peak.Load() > 300<<20 {
				t.Errorf("%d MB", f.peak.Load()>>20)
			}
		})
	}
}

// What processes share counts once: a pool of workers has the pages of its parent.
func TestSharedMemoryCountsOnce(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	f, err := StartFamily(exec.Command(python, "-c", `
import mmap, os, time
data = mmap.mmap(-1, 60 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
data.write(b"x" * (60 << 20))
for i in range(4):
    if os.fork() == 0:
        break
time.sleep(0.5)
`), Limits{Memory: 250 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(); err != nil || f.peak.Load() > 250<<20 || f.peak.Load() < 60<<20 {
		t.Errorf("%v, %d MB", err, f.peak.Load()>>20)
	}
}

// The time of processes that have ended counts, with and without a parent that has waited for them.
func TestProcessorTimeOfAFamily(t *testing.T) {
	const spin = "timeout 0.25 sh -c 'while true; do :; done'; "
	for _, text := range []string{"while true; do " + spin + "done", "while true; do (setsid sh -c \"" + spin + "\" & ) ; sleep 0.3; done"} {
		err := shell(t, text, Limits{Processor: 600 * time.Millisecond}).Wait()
		if limit, ok := errors.AsType[*LimitError](err); !ok || limit.Error() != "needs more than 600ms of processor time" {
			t.Error(err)
		}
	}
}

// TestGuarded is the process that TestGuard kills: it runs a program that does not end.
func TestGuarded(t *testing.T) {
	text := os.Getenv("ATTUNE_TEST_GUARDED")
	if text == "" {
		t.Skip("is run by TestGuard")
	}
	_ = shell(t, text, Limits{}).Wait()
}

// A program, and what it has started, end with this process even if that is killed.
func TestGuard(t *testing.T) {
	for _, start := range []string{"sleep", "setsid sleep"} {
		file := filepath.Join(t.TempDir(), "pid")
		cmd := exec.Command(os.Args[0], "-test.run=^TestGuarded$")
		cmd.Env = append(os.Environ(), "ATTUNE_TEST_GUARDED="+start+" 60 &\necho $! > "+file+".new; mv "+file+".new "+file+"; wait")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := awaitPID(t, file)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		for end := time.Now().Add(5 * time.Second); !zombie(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatal("the child of the program runs on")
			}
		}
	}
}
