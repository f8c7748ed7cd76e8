//go:build linux

package child

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// start starts a shell script on standard input and output.
func start(t *testing.T, text string, o Options) *Process {
	t.Helper()
	o.Command = []string{"/bin/sh", "-c", text}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	o.MaxLine = 100
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestStandardInputAndOutput(t *testing.T) {
	var printed bytes.Buffer
	p := start(t, `while read -r line; do echo "got $line"; echo noise >&2; done`, Options{Printed: &printed})
	for range 3 {
		if line, err := p.Exchange(t.Context(), []byte("a request\n")); err != nil || string(line) != "got a request\n" {
			t.Errorf("%q, %v", line, err)
		}
	}
	p.Close()
	if printed.String() != "noise\nnoise\nnoise\n" {
		t.Errorf("printed %q", printed.String())
	}
}

func TestLosses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"dies":      {"echo no luck >&2; exit 3", "exited (exit status 3): no luck"},
		"too long":  {"read -r x; printf %0200d 1", "sent a response of more than 100 bytes"},
		"half line": {"read -r x; printf half", "exited (exit status 0)"},
	} {
		p := start(t, c.text, Options{})
		if _, err := p.Exchange(t.Context(), []byte("x\n")); err == nil || err.Error() != c.want || !p.Lost() || p.Late() {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := start(t, "sleep 60", Options{Limit: 100 * time.Millisecond})
	if _, err := p.Exchange(t.Context(), []byte("x\n")); err == nil || err.Error() != "did not respond within 100ms and was killed" || !p.Late() {
		t.Errorf("hangs: %v", err)
	}
}

// With an input, requests and responses are on descriptors of their own, and what the process prints
// is no response.
func TestOwnDescriptors(t *testing.T) {
	p := start(t, `cat; while read -r line <&3; do echo noise; echo "got $line" >&4; done`, Options{Input: strings.NewReader("input\n")})
	if line, err := p.Exchange(t.Context(), []byte("a request\n")); err != nil || string(line) != "got a request\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestCancelledExchange(t *testing.T) {
	p := start(t, "sleep 60", Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Exchange(ctx, []byte("x\n")); !errors.Is(err, context.DeadlineExceeded) || !p.Lost() {
		t.Errorf("%v, lost %v", err, p.Lost())
	}
}

// A process that closes its pipe or leaves it to a child of another session does not block.
func TestPipesThatStayOpen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the grace time")
	}
	for name, c := range map[string]struct{ text, want string }{
		"closed":     {"exec >&-; read -r x; sleep 60", "closed its pipe: EOF"},
		"inherited":  {"setsid sleep 20 & sleep 0.2; exit 4", "exited (exit status 4)"},
		"input kept": {"exec <&-; exit 5", "exited (exit status 5)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.text, Options{})
			if _, err := p.Exchange(t.Context(), []byte("x\n")); err == nil || err.Error() != c.want || !p.Lost() {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestProgramThatDoesNotExist(t *testing.T) {
	if _, err := Start(Options{Command: []string{"/no/program"}}); err == nil {
		t.Error("no error")
	}
}

// A process that ignores the end of its input, and one that it has started, are gone after Close.
func TestCloseKillsTheGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the grace time")
	}
	file := filepath.Join(t.TempDir(), "pid")
	p := start(t, "sleep 600 & echo $! > "+file+"; read -r x; echo ok; sleep 600", Options{})
	if _, err := p.Exchange(t.Context(), []byte("x\n")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if syscall.Kill(pid, 0) != nil || zombie(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
}

// zombie reports whether a process is dead and only not collected by its parent yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestLastLine(t *testing.T) {
	var printed tail
	if _, err := io.Copy(&printed, iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 2*tailBytes)+"\nlast \x1b[0mline\n\n"))); err != nil {
		t.Fatal(err)
	}
	if got := printed.lastLine(); got != "last [0mline" {
		t.Errorf("%q", got)
	}
	if got := OneLine("a\nbc", 2); got != "a …" {
		t.Errorf("%q", got)
	}
}
