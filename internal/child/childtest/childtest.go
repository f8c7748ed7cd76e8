package childtest

import (
	"os"
	"syscall"
	"testing"
)

// Program writes an executable file, such as a shell script.
func Program(t testing.TB, path, text string) {
	t.Helper()
	if err := Write(func() error { return os.WriteFile(path, []byte(text), 0o755) }); err != nil {
		t.Fatal(err)
	}
}

// Write calls a function that writes programs. It starts no process. Nor does another goroutine
// until it returns, so no child inherits the descriptor of a program.
func Write(write func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return write()
}
