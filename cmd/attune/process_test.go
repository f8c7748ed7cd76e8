package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/device/isolate"
)

// command is the program as a process, in a folder of its own with an empty cache.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	cmd = exec.Command("attune", args...) // TestMain puts it into PATH
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ATTUNE_CACHE="+filepath.Join(dir, "cache"), "ATTUNE_LEDGER=")
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// exitOf is the exit code of a process, or the signal that ended it.
func exitOf(t *testing.T, err error) (code int, signal syscall.Signal) {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit == nil {
		return 0, 0
	}
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		return -1, status.Signal()
	}
	return exit.ExitCode(), 0
}

// hangingToolkit is a CUDA toolkit whose compiler never ends. It creates a file when it starts.
func hangingToolkit(t *testing.T) (dir, started string) {
	t.Helper()
	dir = t.TempDir()
	started = filepath.Join(dir, "started")
	script := `#!/bin/sh
if [ "$1" = --version ]; then
  echo "Cuda compilation tools, release 13.0, V13.0.88"
  exit
fi
touch ` + started + `
exec sleep 600
`
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvcc", "ptxas"} {
		childtest.Program(t, filepath.Join(dir, "bin", name), script)
	}
	return dir, started
}

// signalWhen sends a signal as soon as a file exists.
func signalWhen(t *testing.T, cmd *exec.Cmd, file string, signal os.Signal) {
	t.Helper()
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func TestInterrupt(t *testing.T) {
	for _, sent := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sent) { // under nohup, which the program respects
			continue
		}
		toolkit, started := hangingToolkit(t)
		temporary := t.TempDir()
		cmd, stderr := command(t, "run", "stage1", "stage2", "--device", "sim")
		cmd.Env = append(cmd.Env, "CUDA_HOME="+toolkit, "NVCC_CCBIN=sh", "TMPDIR="+temporary)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		signalWhen(t, cmd, started, sent)
		if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted {
			t.Errorf("%s: exit code %d, signal %v", sent, code, died)
		}
		if want := "attune: interrupted; 0 of 2 runs were finished; nothing was recorded\n"; stderr.String() != want {
			t.Errorf("%s: standard error is %q, want %q", sent, stderr, want)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
			t.Errorf("%s: temporary files: %v, %v", sent, left, err)
		}
	}
}

// Two kernels: one that ends at once, and one that never ends.
const interruptedPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry quick()
{
	ret;
}
.visible .entry endless()
{
	.reg .b64 %rd<2>;
	mov.u64 %rd1, 0;
again:
	add.u64 %rd1, %rd1, 1;
	bra.uni again;
}
`

func TestInterruptSim(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, stderr := command(t, "sim", "quick.json", "endless.json")
		files := map[string]string{"k.ptx": interruptedPTX}
		for _, entry := range []string{"quick", "endless"} {
			files[entry+".json"] = `{"ptx": "k.ptx", "arch": "sm_80", "entry": "` + entry + `", "grid": [1, 1, 1], "block": [32, 1, 1]}`
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(cmd.Dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(stdout)
		if line, err := out.ReadString('\n'); err != nil || line != "pass  quick.json\n" {
			t.Errorf("%s: %q, %v", signal, line, err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
			t.Errorf("%s: more standard output: %q, %v", signal, rest, err)
		}
		if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted {
			t.Errorf("%s: exit code %d, signal %v", signal, code, died)
		}
		if want := "attune: interrupted; 1 of 2 cases were finished\n"; stderr.String() != want {
			t.Errorf("%s: standard error is %q, want %q", signal, stderr, want)
		}
	}
}

// Before the first mutant the unchanged kernel is built. The compiler of this test never ends.
func TestInterruptMutate(t *testing.T) {
	toolkit, started := hangingToolkit(t)
	temporary := t.TempDir()
	cmd, stderr := command(t, "mutate", "stage2")
	cmd.Env = append(cmd.Env, "CUDA_HOME="+toolkit, "NVCC_CCBIN=sh", "TMPDIR="+temporary)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	signalWhen(t, cmd, started, os.Interrupt)
	if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted {
		t.Errorf("exit code %d, signal %v", code, died)
	}
	if want := "attune: interrupted before the first mutant\n"; stderr.String() != want {
		t.Errorf("standard error is %q, want %q", stderr, want)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("temporary files: %v, %v", left, err)
	}
}

// A reader that closes the pipe causes no stack trace, and does not stop a run that is recorded.
func TestClosedPipe(t *testing.T) {
	few := []string{"stage1", "stage2", "--device", "sim", "--arch", "sm_80", "--shapes", "1x1x32x64", "--seeds", "0"}
	for _, test := range []struct {
		args   []string
		quiet  bool // ends by SIGPIPE without a message
		stderr string
		runs   int
	}{
		{[]string{"list"}, true, "", 0},
		{[]string{"list", "--json"}, true, "", 0},
		{[]string{"version"}, true, "", 0},
		{[]string{"--help"}, true, "", 0},
		{append([]string{"run"}, few...), false, "", 2},
		{append([]string{"run", "--json"}, few...), false, "broken pipe", 2},
	} {
		name := strings.Join(test.args, " ")
		cmd, stderr := command(t, test.args...)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		cmd.Stdout = writer
		err = cmd.Run()
		writer.Close()
		code, died := exitOf(t, err)
		if test.quiet != (died == syscall.SIGPIPE) || !test.quiet && (code == 0) != (test.stderr == "") {
			t.Errorf("%s: exit code %d, signal %v", name, code, died)
		}
		if text := stderr.String(); !strings.Contains(text, test.stderr) || test.stderr == "" && text != "" || strings.Contains(text, "goroutine") {
			t.Errorf("%s: standard error is %s", name, text)
		}
		runs, err := filepath.Glob(filepath.Join(cmd.Dir, ".attune", "runs", "*"))
		if err != nil || len(runs) != test.runs {
			t.Errorf("%s: %d runs recorded, want %d", name, len(runs), test.runs)
		}
	}
}

// A pipe whose reader ends after the first line does not stop the runs, and shows no stack trace.
func TestPipeToHead(t *testing.T) {
	program, stderr := command(t)
	cmd := exec.Command("sh", "-c", `{ attune run stage1 stage2 stage0 --device sim --arch sm_80 --shapes 1x1x32x64; echo $? >code; } | head -n 1`)
	cmd.Dir, cmd.Env, cmd.Stderr = program.Dir, program.Env, stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("%v, standard error %q", err, stderr)
	}
	if !strings.HasPrefix(string(out), "stage1  ok  ") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("standard output %q", out)
	}
	if code, err := os.ReadFile(filepath.Join(cmd.Dir, "code")); err != nil || string(code) != "0\n" {
		t.Errorf("exit code %q, %v", code, err)
	}
	if runs, err := filepath.Glob(filepath.Join(cmd.Dir, ".attune", "runs", "*")); err != nil || len(runs) != 3 {
		t.Errorf("%d runs recorded, %v", len(runs), err)
	}
}

// The program can start itself under any name: the test binary serves a device and runs no tests.
func TestDeviceServer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	d, err := isolate.Start(t.Context(), isolate.Options{Command: []string{self, serverName, "0"}, Limit: time.Minute, Stderr: &printed})
	if err == nil {
		err = d.Close()
	}
	if err != nil && !errors.Is(err, device.ErrNoDevice) || printed.Len() > 0 {
		t.Errorf("%v: %s", err, printed.String())
	}
}

// A command that waits for the reader of its output does not see the first Ctrl-C. The second one ends
// it.
func TestSecondSignal(t *testing.T) {
	if signal.Ignored(os.Interrupt) {
		t.Skip("SIGINT is ignored here, as in the background of a script")
	}
	cmd, _ := command(t, "list", "knobs", "--json")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	full := make([]byte, 1<<16) // the size of a pipe
	if _, err := writer.Write(full); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, wait := range []time.Duration{500 * time.Millisecond, 500 * time.Millisecond} {
		select {
		case err := <-ended:
			t.Fatalf("it ended before the second signal: %v", err)
		case <-time.After(wait):
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	again := time.NewTicker(time.Second) // on a loaded machine two signals may arrive as one
	defer again.Stop()
	for limit := time.After(30 * time.Second); ; {
		select {
		case err := <-ended:
			if code, died := exitOf(t, err); died != syscall.SIGINT {
				t.Errorf("exit code %d, signal %v", code, died)
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		case <-limit:
			t.Fatal("the second signal did not end it", cmd.Process.Kill())
		}
	}
}
