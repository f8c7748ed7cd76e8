package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTerminal opens a pseudo terminal. It returns the program's end, and a function that returns
// what has arrived at the controlling end.
func newTerminal(t *testing.T, width uint16) (program *os.File, written func() string) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	raw, err := controller.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if failed == nil {
			failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width})
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var arrived bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		part := make([]byte, 4096)
		for {
			n, err := controller.Read(part)
			mu.Lock()
			arrived.Write(part[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		program.Close()
		<-read
		controller.Close()
	})
	return program, func() string {
		mu.Lock()
		defer mu.Unlock()
		return arrived.String()
	}
}

// shows waits until the terminal shows a line.
func shows(t *testing.T, written func() string, want string) {
	t.Helper()
	for range 12_000 { // a minute: the machine may be loaded
		if screen(written()) == want && (want != "" || written() != "") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("the terminal shows %q after %q; want %q", screen(written()), written(), want)
}

func TestTerminal(t *testing.T) {
	file, written := newTerminal(t, 40)
	s := NewStatus(file)
	if s == nil {
		t.Fatal("no status line on a terminal")
	}
	s.Set("%s: %d of %d", "stage2", 1, 3)
	shows(t, written, "stage2: 1 of 3")
	s.Set("short")
	shows(t, written, "short")
	s.Clear()
	shows(t, written, "")
	s.Set("again")
	shows(t, written, "again")
	s.Clear()
	shows(t, written, "")
}

func TestCutToWidth(t *testing.T) {
	file, written := newTerminal(t, 20)
	s := NewStatus(file)
	s.Set("%s", strings.Repeat("é", 50))
	// The last column stays free, because some terminals wrap after it.
	shows(t, written, strings.Repeat("é", 19))
	if err := unix.IoctlSetWinsize(int(file.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 30}); err != nil {
		t.Fatal(err)
	}
	s.Set("%s", strings.Repeat("x", 50))
	shows(t, written, strings.Repeat("x", 29))
	s.Clear()
}

// A terminal that reports no width counts as 80 columns wide.
func TestUnknownWidth(t *testing.T) {
	file, written := newTerminal(t, 0)
	s := NewStatus(file)
	s.Set("%s", strings.Repeat("x", 100))
	shows(t, written, strings.Repeat("x", 79))
	s.Clear()
}

func TestNoStatus(t *testing.T) {
	silent := func(name string, file *os.File) {
		t.Helper()
		s := NewStatus(file)
		if s != nil {
			t.Errorf("a status line on %s", name)
		}
		s.Set("not shown")
		s.Clear()
	}
	file, written := newTerminal(t, 80)
	t.Setenv("TERM", "dumb")
	silent("a dumb terminal", file)
	if written() != "" {
		t.Errorf("%q was written", written())
	}
	t.Setenv("TERM", "xterm")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	silent("a pipe", in)
	in.Close()
	silent("a closed file", in)
}

func TestConcurrentUse(t *testing.T) {
	file, written := newTerminal(t, 80)
	s := NewStatus(file)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 100 {
				s.Set("%d: %d", i, n)
				if n%10 == i {
					s.Clear()
				}
			}
		})
	}
	all.Wait()
	s.Clear()
	s.Set("last")
	shows(t, written, "last")
	s.Clear()
	shows(t, written, "")
}
