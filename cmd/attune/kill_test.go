package main

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var kills = flag.Int("kills", 6, "runs that TestKilledRun kills")

// A run that is killed at any moment leaves a ledger without problems. Half of the kills come at a
// random time, the others while the record is written.
func TestKilledRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	args := []string{"run", "stage0", "--device", "sim", "--arch", "sm_89", "--shapes", "1x1x8x64", "--seeds", "0", "--ledger", dir}
	first, stderr := command(t, args...)
	began := time.Now()
	if err := first.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	whole := time.Since(began)
	clean, killed, unfinished := 0, 0, 0
	for i := range *kills {
		cmd, _ := command(t, args...)
		cmd.Dir = first.Dir // its cache has the image
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if i%2 == 0 {
			time.Sleep(rand.N(whole))
		} else {
			waitForRecording(dir, ended)
			time.Sleep(rand.N(4 * time.Millisecond))
		}
		_ = cmd.Process.Kill() // it may have ended
		if _, signal := exitOf(t, <-ended); signal == syscall.SIGKILL {
			killed++
		}
		unfinished += len(temporaryRuns(dir))
		verify, _ := command(t, "ledger", "verify", "--ledger", dir)
		out, err := verify.Output()
		if err != nil || !strings.Contains(string(out), ", 0 problems\nroot ") || len(temporaryRuns(dir)) > 0 {
			t.Errorf("kill %d: %v\n%s%q", i, err, out, temporaryRuns(dir))
			continue
		}
		clean++
	}
	t.Logf("%d of %d ledgers were clean; %d runs were killed before they ended, %d with an unfinished record", clean, *kills, killed, unfinished)
}

// waitForRecording returns when a run starts to write its record, or has ended.
func waitForRecording(dir string, ended chan error) {
	for len(temporaryRuns(dir)) == 0 {
		select {
		case err := <-ended:
			ended <- err
			return
		case <-time.After(50 * time.Microsecond):
		}
	}
}

func temporaryRuns(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "runs", ".tmp-*"))
	return found
}
