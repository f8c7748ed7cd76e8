package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests in this file start this test binary again as a child process that records runs.
const (
	childTask   = "ATTUNE_LEDGER_TEST_TASK"
	childLedger = "ATTUNE_LEDGER_TEST_DIR"
)

var childTasks = map[string]func(ctx context.Context, dir string) error{
	"twenty":      func(ctx context.Context, dir string) error { return recordRuns(ctx, dir, 20) },
	"endless":     func(ctx context.Context, dir string) error { return recordRuns(ctx, dir, 1<<30) },
	"list":        listRuns,
	"file limit":  recordUnderFileLimit,
	"index limit": recordWithoutRoomForIndex,
}

func TestMain(m *testing.M) {
	task, ok := childTasks[os.Getenv(childTask)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := task(context.Background(), os.Getenv(childLedger)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(task, dir string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childTask+"="+task, childLedger+"="+dir)
	return c
}

// recordRuns prints the id of each run after it is recorded. The run must then survive a kill.
func recordRuns(ctx context.Context, dir string, n int) error {
	l, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	for i := range n {
		e, err := l.Record(ctx, runFiles(sampleEntry(i)))
		if err != nil {
			return err
		}
		fmt.Println(e.ID)
		// Find updates the index while other processes record. It must not undo their updates.
		if _, err := l.Find(ctx, e.ID); err != nil {
			return err
		}
	}
	return nil
}

func listRuns(ctx context.Context, dir string) error {
	l, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	entries, err := l.List(ctx, Filter{})
	for _, e := range entries {
		fmt.Println(e.ID)
	}
	return err
}

// wantRecorded checks that every run in the ledger is intact, and that the recorded ones are there.
func wantRecorded(t *testing.T, dir string, recorded []string) {
	t.Helper()
	l := open(t, dir)
	entries, err := l.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	listed := ids(entries)
	for _, id := range recorded {
		if !slices.Contains(listed, id) {
			t.Errorf("run %s was recorded and is lost", id)
		}
	}
	r, err := l.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		if !strings.HasPrefix(p.File, "runs/"+temporaryPrefix) {
			t.Errorf("%s", p)
		}
	}
	if r.Runs != len(listed) {
		t.Errorf("%d runs are listed, %d are sound", len(listed), r.Runs)
	}
	// Reindex removes the unfinished recordings of killed processes.
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != len(listed) {
		t.Errorf("Reindex: %+v, %v; want %d runs", r, err, len(listed))
	}
	wantProblems(t, l, len(listed))
	if n := countTemporary(t, dir); n != 0 {
		t.Errorf("%d temporary directories left", n)
	}
}

func TestProcessesRecordConcurrently(t *testing.T) {
	const processes = 8
	dir := filepath.Join(t.TempDir(), "ledger")
	outputs := make([][]byte, processes)
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() {
			c := child("twenty", dir)
			c.Stderr = os.Stderr
			var err error
			if outputs[i], err = c.Output(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	group.Wait()
	var recorded []string
	for _, out := range outputs {
		recorded = append(recorded, strings.Fields(string(out))...)
	}
	if len(recorded) != processes*20 {
		t.Errorf("%d runs were recorded, want %d", len(recorded), processes*20)
	}
	if n := onDisk(t, dir); n != processes*20 {
		t.Errorf("the index holds %d runs, want %d", n, processes*20)
	}
	wantRecorded(t, dir, recorded)
}

func TestProcessesReplaceDamagedIndex(t *testing.T) {
	dir, all := indexed(t, 40)
	if err := os.WriteFile(filepath.Join(dir, indexName), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			c := child("list", dir)
			c.Stderr = os.Stderr
			if out, err := c.Output(); err != nil || len(strings.Fields(string(out))) != len(all) {
				t.Errorf("%v: listed %q", err, out)
			}
		})
	}
	group.Wait()
	if n := onDisk(t, dir); n != len(all) {
		t.Errorf("the index holds %d runs, want %d", n, len(all))
	}
	if bad, err := os.ReadFile(filepath.Join(dir, indexName+".bad")); err != nil || string(bad) != "garbage" {
		t.Errorf("a sound index was moved aside as well: %d bytes, %v", len(bad), err)
	}
}

func TestKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	var recorded []string
	for range 16 {
		c := child("endless", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// Wait for the first run, so that the kill hits a recording and not the start of the
		// process.
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			recorded = append(recorded, lines.Text())
		}
		time.AfterFunc(rand.N(120*time.Millisecond), func() { c.Process.Kill() })
		for lines.Scan() {
			recorded = append(recorded, lines.Text())
		}
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the process was to be killed, but: %v", err)
		}
	}
	t.Logf("%d runs recorded, %d temporary directories left", len(recorded), countTemporary(t, dir))
	wantRecorded(t, dir, recorded)
}

// The process is killed while it creates the ledger.
func TestKilledOnFirstRun(t *testing.T) {
	for range 10 {
		dir := filepath.Join(t.TempDir(), "ledger")
		c := child("endless", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			if _, err := os.Stat(dir); err == nil || time.Now().After(deadline) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.AfterFunc(rand.N(40*time.Millisecond), func() { c.Process.Kill() })
		text, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		c.Wait()
		wantRecorded(t, dir, strings.Fields(string(text)))
	}
}

func countTemporary(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, runsName, temporaryPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// limitFileSize makes writes beyond a file size fail until lift is called.
func limitFileSize(bytes uint64) (lift func(), err error) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		return nil, err
	}
	err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: before.Max})
	return func() { syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }, err
}

// recordUnderFileLimit records files below and above a size limit. The large ones fail
// half-written.
func recordUnderFileLimit(ctx context.Context, dir string) error {
	lift, err := limitFileSize(100_000)
	if err != nil {
		return err
	}
	defer lift()
	l, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	for i := range 3 {
		e := sampleEntry(i)
		files := runFiles(e)
		files["samples.json"] = make([]byte, 300_000)
		_, err := l.Record(ctx, files)
		if err == nil || !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "was not recorded") ||
			!strings.Contains(err.Error(), "300000 bytes: write ") || !strings.Contains(err.Error(), "samples.json") {
			return fmt.Errorf("a file over the limit: %w", err)
		}
		if e, err = l.Record(ctx, runFiles(e)); err != nil {
			return err
		}
		fmt.Println(e.ID)
	}
	return nil
}

// recordWithoutRoomForIndex records runs under a size limit that the index exceeds.
func recordWithoutRoomForIndex(ctx context.Context, dir string) error {
	lift, err := limitFileSize(4000)
	if err != nil {
		return err
	}
	defer lift()
	if err := recordRuns(ctx, dir, 5); err != nil {
		return err
	}
	l, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	if entries, err := l.List(ctx, Filter{}); err != nil || len(entries) != 5 {
		return fmt.Errorf("%d runs are listed: %w", len(entries), err)
	}
	if _, err := l.Reindex(ctx); err == nil || !strings.Contains(err.Error(), "was not rebuilt") {
		return fmt.Errorf("reindexing without room: %w", err)
	}
	return nil
}

func TestFileLimit(t *testing.T) {
	for task, runs := range map[string]int{"file limit": 3, "index limit": 5} {
		t.Run(task, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ledger")
			c := child(task, dir)
			c.Stderr = os.Stderr
			out, err := c.Output()
			if err != nil {
				t.Fatal(err)
			}
			if n := countTemporary(t, dir); n != 0 {
				t.Errorf("%d temporary directories left", n)
			}
			recorded := strings.Fields(string(out))
			if len(recorded) != runs {
				t.Errorf("%d runs recorded, want %d", len(recorded), runs)
			}
			wantRecorded(t, dir, recorded)
			if n := onDisk(t, dir); n != runs {
				t.Errorf("the index holds %d runs, want %d", n, runs)
			}
		})
	}
}
