package ledger

import (
	"bufio"
	"context"
	"errors"
	"flag"
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
	"everything":  writeEverything,
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

// writeEverything records runs and benches, promotes, rolls back and removes, without end. It prints
// "runs/ID" or "benches/ID" after a record is written, and "- runs/ID" before one is removed.
func writeEverything(ctx context.Context, dir string) error {
	l, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	for i := 0; ; i++ {
		e := sampleEntry(i)
		e.CodeHash = e.ID
		if _, err := l.Record(ctx, runFiles(e)); err != nil {
			return err
		}
		fmt.Println("runs/" + e.ID)
		id, files := benchFiles(i)
		if err := l.RecordBench(ctx, files); err != nil {
			return err
		}
		fmt.Println("benches/" + id)
		switch i % 3 {
		case 0:
			_, err = l.Promote(ctx, promotion(e, "sm_90"))
		case 1:
			fmt.Println("- runs/" + e.ID)
			_, err = l.Remove(ctx, e.ID)
		case 2:
			fmt.Println("- benches/" + id)
			_, err = l.Remove(ctx, id)
		}
		if err != nil {
			return err
		}
	}
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
		t.Errorf("%s", p)
	}
	if r.Runs != len(listed) {
		t.Errorf("%d runs are listed, %d are sound", len(listed), r.Runs)
	}
	// The unfinished recordings of killed processes were removed when the ledger was opened.
	if n := countTemporary(t, dir); n != 0 {
		t.Errorf("%d temporary directories left", n)
	}
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != len(listed) {
		t.Errorf("Reindex: %+v, %v; want %d runs", r, err, len(listed))
	}
	wantProblems(t, l, len(listed))
}

func TestProcessesRecordConcurrently(t *testing.T) {
	if testing.Short() {
		t.Skip("starts eight processes")
	}
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

var kills = flag.Int("kills", 10, "processes that TestKilledAnywhere kills")

// After a kill at any moment of any change the ledger is clean, and nothing that was reported as
// written is lost.
func TestKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	known := map[string]bool{}
	clean, pending, left := 0, 0, 0
	for range *kills {
		c := child("everything", dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for first := true; lines.Scan(); first = false {
			if first {
				time.AfterFunc(rand.N(100*time.Millisecond), func() { c.Process.Kill() })
			}
			record, removed := strings.CutPrefix(lines.Text(), "- ")
			known[record] = !removed
		}
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the process was to be killed, but: %v", err)
		}
		p, n := leftovers(t, dir)
		pending, left = pending+p, left+n
		if isClean(t, dir, known) {
			clean++
		}
	}
	t.Logf("%d of %d kills left a clean ledger; %d had left a temporary directory, %d of them a record to finish", clean, *kills, left, pending)
}

// leftovers counts temporary directories, and those that the chain names.
func leftovers(t *testing.T, dir string) (pending, all int) {
	t.Helper()
	l := &Ledger{dir: dir, chain: &chainFile{path: filepath.Join(dir, chainName)}}
	c := readChain(t, l)
	for _, f := range l.folders() {
		for _, d := range temporaries(f.path) {
			all++
			if seal, ok := c.seal(f.record(temporaryID(d.Name()))); ok && f.isPending(temporaryID(d.Name()), d.Name(), seal) {
				pending++
			}
		}
	}
	return pending, all + len(temporaries(dir))
}

// isClean opens a ledger and checks that it has no problems and all known records.
func isClean(t *testing.T, dir string, known map[string]bool) bool {
	t.Helper()
	l := open(t, dir)
	defer l.Close()
	r, err := l.Verify(t.Context())
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("Verify: %v, %v", r.Problems, err)
		return false
	}
	c := readChain(t, l)
	for record, kept := range known {
		if _, ok := c.seal(record); kept && !ok {
			t.Errorf("%s was recorded and is lost", record)
			return false
		}
	}
	if l.hasTemporary() {
		t.Error("temporary directories are left")
		return false
	}
	return true
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
		for { // the limit of the test binary ends a process that never begins
			if _, err := os.Stat(dir); err == nil {
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
