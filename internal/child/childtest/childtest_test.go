//go:build linux

package childtest

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Scripts are written and started while other goroutines start processes. With os.WriteFile alone,
// 13 to 24 of 100 starts fail on two cores; with a wait for running forks after it, 3 to 8 do.
func TestProgram(t *testing.T) {
	var others sync.WaitGroup
	defer others.Wait()
	done := make(chan struct{})
	defer close(done)
	for range 4 {
		others.Go(func() { startUntil(t, done) })
	}
	dir, starts, busy := t.TempDir(), 0, 0
	for begin := time.Now(); time.Since(begin) < time.Second; starts++ {
		path := filepath.Join(dir, fmt.Sprint(starts))
		Program(t, path, "#!/bin/sh\n")
		switch err := exec.Command(path).Run(); {
		case errors.Is(err, syscall.ETXTBSY):
			busy++
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d starts failed", busy, starts)
	if busy > 0 {
		t.Fail()
	}
}

// startUntil starts processes.
func startUntil(t *testing.T, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
				return
			}
		}
	}
}
