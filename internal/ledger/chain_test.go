package ledger

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	sealA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sealB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestChain(t *testing.T) {
	c := newChain()
	run, bench := "runs/20261115-031522-stage2-3f9a1c", "benches/20261115-031523-bench-3f9a1d"
	push := func(action, record, seal, want string) {
		t.Helper()
		err := c.push(action, record, seal)
		if want == "" && err != nil {
			t.Fatal(err)
		}
		if want != "" {
			wantError(t, err, want)
		}
	}
	push(added, run, sealA, "")
	push(added, run, sealA, "already in the chain")
	push(added, bench, sealB, "")
	push(removed, run, sealB, "another seal")
	push(removed, run, sealA, "")
	push(removed, run, sealA, "is not in the chain")
	push(added, run, sealB, "")
	if seal, ok := c.seal(run); !ok || seal != sealB || len(c.links) != 4 {
		t.Errorf("%s, %t, %d links", seal, ok, len(c.links))
	}
	again, err := parseChain(c.String())
	if err != nil || again.root() != c.root() || !cmp.Equal(again.live, c.live) || !cmp.Equal(again.gone, c.gone) {
		t.Errorf("%v: %+v, want %+v", err, again, c)
	}
	// sha256sum gives the hash of a line.
	if tool, err := exec.LookPath("sha256sum"); err == nil {
		sum := exec.Command(tool)
		sum.Stdin = strings.NewReader(strings.Repeat("0", 64) + " add " + run + " " + sealA + "\n")
		if out, err := sum.Output(); err != nil || !strings.HasPrefix(string(out), c.links[0].hash+" ") {
			t.Errorf("%s, %v; want %s", out, err, c.links[0].hash)
		}
	}
}

func TestParseChainRefuses(t *testing.T) {
	c := newChain()
	for i := range 3 {
		if err := c.push(added, "runs/"+sampleEntry(i).ID, sealA); err != nil {
			t.Fatal(err)
		}
	}
	text := c.String()
	lines := strings.SplitAfter(text, "\n")
	for _, bad := range []struct{ text, want string }{
		{"", "line 1"},
		{"chain\n", "line 1 is not"},
		{chainFormat + "2\n", `the format is "2", and this attune reads 1`},
		{text[:len(text)-1], "its last line is incomplete"},
		{text + "\n", "line 5: it is not add or remove"},
		{lines[0] + "put" + lines[1][3:], "line 2: it is not add or remove"},
		{lines[0] + strings.Replace(lines[1], "runs/", "ruins/", 1), "is not a record"},
		{lines[0] + strings.Replace(lines[1], "runs/", "runs/../", 1), "is not a record"},
		{lines[0] + strings.Replace(lines[1], sealA, sealA[1:], 1), "the seal is not"},
		{lines[0] + strings.Replace(lines[1], sealA, sealB, 1), "line 2: its hash does not follow"},
		{lines[0] + lines[2], "line 2: its hash does not follow"},
		{lines[0] + lines[1] + lines[3] + lines[2], "line 3: its hash does not follow"},
	} {
		_, err := parseChain(bad.text)
		wantError(t, err, bad.want)
	}
	// A chain with right hashes may still contradict itself.
	k := link{action: added, record: c.links[0].record, seal: sealA}
	_, err := parseChain(text + strings.Join([]string{k.action, k.record, k.seal, k.hashAfter(c.root())}, " ") + "\n")
	wantError(t, err, "line 5: ", "is already in the chain")
}

func FuzzChain(f *testing.F) {
	c := newChain()
	for i, action := range []string{added, added, removed} {
		if err := c.push(action, "runs/20261115-03152"+string(rune('0'+i%2))+"-stage2-3f9a1c", sealA); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(c.String())
	f.Add(chainFormat + "1\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseChain(text)
		if err == nil && c.String() != text {
			t.Errorf("%q is read, but written as %q", text, c)
		}
		for record := range c.live {
			if strings.Contains(record, "..") && !strings.Contains(text, record) {
				t.Errorf("%q has the record %q", text, record)
			}
		}
	})
}

// deadPID returns the number of a process that has ended.
func deadPID(t *testing.T) int {
	t.Helper()
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	return dead.Process.Pid
}

// Each test leaves a ledger as a kill at one moment of a change does.
func TestInterruptedChanges(t *testing.T) {
	dead := deadPID(t)
	abandon := func(t *testing.T, f folder, id string) { // the temporary directory now is of a dead process
		t.Helper()
		if err := os.Rename(f.temporary(id), filepath.Join(f.path, temporaryName(dead, pidSpace(), id))); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, runs int, change func(t *testing.T, l *Ledger, all []Entry)) {
		t.Run(name, func(t *testing.T) {
			l, all := filled(t, 2)
			change(t, l, all)
			fresh := open(t, l.dir)
			wantProblems(t, fresh, runs)
			if fresh.hasTemporary() {
				t.Errorf("left: %q and %q", names(t, l.dir), names(t, l.runsPath()))
			}
		})
	}
	stage := func(t *testing.T, l *Ledger) staged {
		t.Helper()
		e := sampleEntry(2)
		s, err := l.runs().stage(t.Context(), e.ID, runFiles(e))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	chained := func(t *testing.T, l *Ledger, action, id, seal string) {
		t.Helper()
		c := readChain(t, l)
		if err := errors.Join(c.push(action, "runs/"+id, seal), l.chain.replace(c)); err != nil {
			t.Fatal(err)
		}
	}
	check("before the chain", 3, func(t *testing.T, l *Ledger, _ []Entry) { abandon(t, l.runs(), stage(t, l).id) })
	check("while the chain is written", 3, func(t *testing.T, l *Ledger, _ []Entry) {
		abandon(t, l.runs(), stage(t, l).id)
		if err := writeFile(filepath.Join(l.dir, temporaryName(dead, pidSpace(), chainName)), []byte(chainFormat)); err != nil {
			t.Fatal(err)
		}
	})
	check("before the record was complete", 2, func(t *testing.T, l *Ledger, _ []Entry) {
		s := stage(t, l)
		if err := os.Remove(filepath.Join(s.temporary, sumsName)); err != nil {
			t.Fatal(err)
		}
		abandon(t, l.runs(), s.id)
	})
	check("after the chain", 3, func(t *testing.T, l *Ledger, _ []Entry) {
		s := stage(t, l)
		chained(t, l, added, s.id, s.seal)
		abandon(t, l.runs(), s.id)
		wantProblems(t, l, 2, "an unfinished recording of a dead process", s.id+": its recording was interrupted after it was complete")
	})
	check("after the chain, seen by a living process", 3, func(t *testing.T, l *Ledger, _ []Entry) {
		s := stage(t, l)
		chained(t, l, added, s.id, s.seal)
	})
	check("removal before the chain", 2, func(t *testing.T, l *Ledger, all []Entry) {
		if err := os.Rename(l.runPath(all[0].ID), l.runs().temporary(all[0].ID)); err != nil {
			t.Fatal(err)
		}
		abandon(t, l.runs(), all[0].ID)
	})
	check("removal after the chain", 1, func(t *testing.T, l *Ledger, all []Entry) {
		seal, _ := readChain(t, l).seal("runs/" + all[0].ID)
		chained(t, l, removed, all[0].ID, seal)
		if err := os.Rename(l.runPath(all[0].ID), l.runs().temporary(all[0].ID)); err != nil {
			t.Fatal(err)
		}
		abandon(t, l.runs(), all[0].ID)
	})
}

// A temporary directory under the id of a missing record must have its seal.
func TestForgedPendingRecord(t *testing.T) {
	l, all := filled(t, 1)
	if err := os.RemoveAll(l.runPath(all[0].ID)); err != nil {
		t.Fatal(err)
	}
	forged := all[0]
	forged.Verdict = "merge"
	if _, err := l.runs().stage(t.Context(), forged.ID, runFiles(forged)); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, open(t, l.dir), 0, all[0].ID+": is missing, but line 2 of the chain names it")
}

// With a damaged chain nothing is removed: the lost lines may name the directories.
func TestDamagedChain(t *testing.T) {
	l, all := filled(t, 2)
	id := sampleEntry(2).ID
	left := filepath.Join(l.runsPath(), temporaryName(deadPID(t), pidSpace(), id))
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := edit(l.chain.path, func(b []byte) []byte { return b[:len(b)-1] }); err != nil {
		t.Fatal(err)
	}
	fresh := open(t, l.dir)
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
	wantRuns(t, fresh, all)
	wantProblems(t, fresh, 2, "an unfinished recording", "chain: its last line is incomplete; restore it")
	_, err := fresh.Record(t.Context(), runFiles(sampleEntry(3)))
	wantError(t, err, "not recorded", "the chain of the ledger is damaged", "its last line is incomplete; restore it from git or a copy")
	_, err = fresh.Seal(t.Context())
	wantError(t, err, "the chain of the ledger is damaged")
	_, err = fresh.Remove(t.Context(), all[0].ID)
	wantError(t, err, "the chain of the ledger is damaged")
	_, err = fresh.Import(t.Context(), l.dir)
	wantError(t, err, "chain: its last line is incomplete")
	wantError(t, fresh.Ready(), "the chain of the ledger is damaged")
	wantError(t, fresh.Sealed(id), id, "cannot be trusted", "damaged")
	if n := len(temporaries(l.runsPath())); n != 1 {
		t.Errorf("%d temporary directories, want the one that was there", n)
	}
}

// A ledger of an earlier version has no chain. New records start one, which does not vouch for the
// old ones.
func TestLedgerWithoutChain(t *testing.T) {
	dir := t.TempDir()
	old := []Entry{sampleEntry(0), sampleEntry(1)}
	for _, e := range old {
		plant(t, dir, e)
	}
	l := open(t, dir)
	wantRuns(t, l, old)
	wantProblems(t, l, 2, "chain: is missing: nothing shows that the 2 records are the ones that were written")
	wantError(t, l.Sealed(old[0].ID), old[0].ID+" is not in the chain")
	_, err := l.Promote(t.Context(), promotion(old[1], "sm_90"))
	wantError(t, err, "nothing was promoted: run "+old[1].ID+" is not in the chain of the ledger")
	third := sampleEntry(2)
	record(t, l, third)
	wantProblems(t, l, 1, old[0].ID+": is not in the chain", old[1].ID+": is not in the chain")
	r, err := l.Seal(t.Context())
	if want := []string{"runs/" + old[0].ID, "runs/" + old[1].ID}; err != nil || r.Runs != 2 || !slices.Equal(r.Added, want) || r.Links() != 3 {
		t.Errorf("Seal: %+v, %v", r, err)
	}
	wantProblems(t, l, 3)
	promote(t, l, old[1], "sm_90")
	if again, err := l.Seal(t.Context()); err != nil || len(again.Added) != 0 {
		t.Errorf("Seal: %+v, %v", again, err)
	}
	if since, ok := func() (int, bool) { v, _ := l.Verify(t.Context()); return v.Since(r.Root) }(); !ok || since != 1 {
		t.Errorf("%d links since the seal, %t", since, ok)
	}
}

func TestSealRefusesDamage(t *testing.T) {
	l := open(t, t.TempDir())
	if r, err := l.Seal(t.Context()); err != nil || r.Root != "" {
		t.Errorf("an empty ledger: %+v, %v", r, err)
	}
	sound := sampleEntry(0)
	plant(t, l.dir, sound)
	for i, damage := range map[int]func(run string) error{
		1: func(run string) error { return os.Remove(filepath.Join(run, "report.md")) },
		2: func(run string) error { return os.Rename(run, filepath.Join(l.runsPath(), NewID(dawn, "other"))) },
	} {
		e := sampleEntry(i)
		plant(t, l.dir, e)
		if err := damage(l.runPath(e.ID)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Seal(t.Context())
	if err != nil || !slices.Equal(r.Added, []string{"runs/" + sound.ID}) || len(r.Problems) != 2 {
		t.Errorf("Seal: %+v, %v", r, err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Seal(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRemove(t *testing.T) {
	l, runs := contenders(t, 3)
	bench := recordBench(t, l, 5)
	promote(t, l, runs[0], "sm_90")
	champion := names(t, l.champions().path)[0]
	refused := func(ref, want string) {
		t.Helper()
		_, err := l.Remove(t.Context(), ref)
		wantError(t, err, want)
	}
	refused("", `no run ""`)
	refused("none", `no run "none"`)
	refused("2026", "is ambiguous; it may be benches/")
	refused(runs[0].ID, "is the evidence of the champion record "+champion)
	refused(champion, "it cannot be removed")
	for _, ref := range []string{runs[1].ID, bench[len(bench)-6:]} {
		if _, err := l.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, l.benches().path); len(got) != 0 {
		t.Errorf("benches has %q", got)
	}
	wantProblems(t, l, 2)

	// The record is already gone, or was never in the chain.
	if err := os.RemoveAll(l.runPath(runs[2].ID)); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, l, 1, runs[2].ID+": is missing")
	if record, err := l.Remove(t.Context(), runs[2].ID); err != nil || record != "runs/"+runs[2].ID {
		t.Errorf("%s, %v", record, err)
	}
	foreign := sampleEntry(7)
	plant(t, l.dir, foreign)
	if _, err := l.Remove(t.Context(), foreign.ID); err != nil {
		t.Error(err)
	}
	wantProblems(t, l, 1)

	// A record that comes back is reported until it is sealed.
	plant(t, l.dir, runs[1])
	wantProblems(t, l, 1, runs[1].ID+": was removed (line 7 of the chain) and is back")
	seal(t, l.dir)
	wantProblems(t, l, 2)
}

func TestImport(t *testing.T) {
	from := victim(t)
	to := open(t, filepath.Join(t.TempDir(), "to"))
	one := names(t, from.runsPath())[0]
	if r, err := to.Import(t.Context(), from.runPath(one)); err != nil || !slices.Equal(r.Added, []string{"runs/" + one}) || r.Links() != 1 {
		t.Errorf("one run: %+v, %v", r, err)
	}
	r, err := to.Import(t.Context(), from.dir)
	if err != nil || r.Runs != 2 || r.Benches != 2 || r.Champions != 3 {
		t.Errorf("the others: %+v, %v", r, err)
	}
	if r, err = to.Import(t.Context(), from.dir); err != nil || len(r.Added) != 0 || r.Links() != 8 {
		t.Errorf("again: %+v, %v", r, err)
	}
	wantProblems(t, to, 3)

	// Old ledgers have no chain.
	old := t.TempDir()
	e := sampleEntry(20)
	plant(t, old, e)
	if r, err := to.Import(t.Context(), old); err != nil || r.Runs != 1 {
		t.Errorf("without a chain: %+v, %v", r, err)
	}
	wantProblems(t, to, 4)
}

func TestImportRefuses(t *testing.T) {
	to, _ := filled(t, 1)
	before := readChain(t, to).root()
	refused := func(want string, paths ...string) {
		t.Helper()
		_, err := to.Import(t.Context(), paths...)
		wantError(t, err, want)
		if got := readChain(t, to).root(); got != before || to.hasTemporary() {
			t.Errorf("a refused import changed the ledger: root %s, %q", got, names(t, to.runsPath()))
		}
	}
	refused("is neither a ledger with records nor the directory of a record", t.TempDir())
	refused("is neither a ledger with records", filepath.Join(t.TempDir(), "runs", sampleEntry(0).ID))

	from, all := filled(t, 2)
	foreign := sampleEntry(5)
	plant(t, from.dir, foreign)
	refused("chain: does not name runs/"+foreign.ID, from.runPath(all[0].ID), from.runPath(foreign.ID))
	overwrite(t, filepath.Join(from.runPath(all[0].ID), "report.md"), "")
	refused("report.md: was changed", from.runPath(all[1].ID), from.runPath(all[0].ID))

	// The same id with other contents.
	clash, err := to.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	clash[0].Verdict = "merge"
	other := t.TempDir()
	plant(t, other, clash[0])
	refused("already has a run with this id", other)
	if err := os.WriteFile(filepath.Join(other, "benches"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("list the benches", other)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := to.Import(cancelled, from.dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Processes and goroutines that record, seal and remove at the same time form one chain.
func TestConcurrentChain(t *testing.T) {
	l := open(t, t.TempDir())
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			own := open(t, l.dir)
			e := sampleEntry(i)
			_, err := own.Record(t.Context(), runFiles(e))
			_, files := benchFiles(i)
			err = errors.Join(err, own.RecordBench(t.Context(), files))
			if i%2 == 0 {
				_, removal := own.Remove(t.Context(), e.ID)
				err = errors.Join(err, removal)
			}
			_, sealing := own.Seal(t.Context())
			_, verifying := own.Verify(t.Context())
			if err := errors.Join(err, sealing, verifying); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	wantBenches(t, l, 4, 8)
	if n := len(readChain(t, l).links); n != 20 {
		t.Errorf("%d links, want 20", n)
	}
}

// If a record cannot be moved into place, the chain is as before.
func TestPublishRetracts(t *testing.T) {
	for _, existing := range []int{0, 1} {
		l, _ := filled(t, existing)
		var records []staged
		for i := range 2 {
			e := sampleEntry(10 + i)
			s, err := l.runs().stage(t.Context(), e.ID, runFiles(e))
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, s)
		}
		before := readChain(t, l).root()
		if err := os.RemoveAll(records[0].temporary); err != nil {
			t.Fatal(err)
		}
		if err := l.publish(records[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		if got := readChain(t, l); got.root() != before || got.exists != (existing > 0) {
			t.Errorf("%d records: the root is %q, want %q", existing, got.root(), before)
		}
		// The first of two is in place when the second fails.
		if err := l.publish(records[1], records[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
		wantProblems(t, l, existing+1)
	}
}

// If the chain cannot be written, every change is refused and undone.
func TestChainCannotBeWritten(t *testing.T) {
	l, all := filled(t, 2)
	plant(t, l.dir, sampleEntry(2))
	inTheWay := filepath.Join(l.dir, temporaryName(os.Getpid(), pidSpace(), chainName))
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, files := benchFiles(3)
	for want, err := range map[string]error{
		"was not recorded":   second(l.Record(t.Context(), runFiles(sampleEntry(4)))),
		"nothing was sealed": second(l.Seal(t.Context())),
		"was not removed":    second(l.Remove(t.Context(), all[0].ID)),
		"bench ":             l.RecordBench(t.Context(), files),
		"not changed":        second(l.Promote(t.Context(), promotion(all[0], "sm_90"))),
	} {
		wantError(t, err, want, "file exists")
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, open(t, l.dir), 2, "is not in the chain")
	if l.hasTemporary() {
		t.Errorf("left: %q", names(t, l.runsPath()))
	}
}

func TestNameFullDisk(t *testing.T) {
	wantError(t, nameFullDisk(syscall.ENOSPC), "the disk is full; free some space or use another ledger: no space left on device")
	wantError(t, nameFullDisk(syscall.EDQUOT), "the disk is full")
	if err := nameFullDisk(fs.ErrExist); err != fs.ErrExist {
		t.Error(err)
	}
}

// Every kind of file in the place of a record's file is refused without waiting for it.
func TestReadRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for kind, put := range map[string]func() error{
		"link":      func() error { return os.Symlink("/etc/hostname", path) },
		"pipe":      func() error { return syscall.Mkfifo(path, 0o644) },
		"directory": func() error { return os.Mkdir(path, 0o755) },
		"socket": func() error {
			s, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err == nil {
				t.Cleanup(func() { s.Close() })
			}
			return err
		},
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		_, err := readRegular(path)
		wantError(t, err, "file: it is not a regular file")
		if err := os.Remove(path); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
}

// The newest run and bench have names, and a misspelt id is answered with the nearest.
func TestRemoveByName(t *testing.T) {
	l, runs := contenders(t, 2)
	bench := recordBench(t, l, 5)
	_, err := l.Remove(t.Context(), runs[0].ID[:len(runs[0].ID)-1]+"x")
	wantError(t, err, "; the nearest are "+runs[0].ID)
	for _, c := range []struct{ ref, want string }{
		{"latest", "runs/" + runs[1].ID}, {"latest-bench", "benches/" + bench}, {"latest", "runs/" + runs[0].ID},
	} {
		if got, err := l.Remove(t.Context(), c.ref); err != nil || got != c.want {
			t.Errorf("%s: removed %s, %v, want %s", c.ref, got, err, c.want)
		}
	}
	_, err = l.Remove(t.Context(), "latest")
	wantError(t, err, `no run "latest": the ledger has no runs`)
}

// Files that were changed after the record was sealed are named by Seal and Damage.
func TestChangedAfterSeal(t *testing.T) {
	l, runs := contenders(t, 2)
	bench := recordBench(t, l, 5)
	for _, file := range []string{filepath.Join(l.runPath(runs[0].ID), "report.md"), filepath.Join(l.benches().dir(bench), benchName)} {
		if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, []byte("forged"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Seal(t.Context())
	if err != nil || len(r.Problems) != 2 || len(r.Added) != 0 {
		t.Errorf("Seal: %+v, %v", r, err)
	}
	for id, want := range map[string]int{runs[0].ID: 1, runs[1].ID: 0, bench: 1, "none": 0} {
		if found := l.Damage(id); len(found) != want {
			t.Errorf("Damage of %s: %v, want %d problems", id, found, want)
		}
	}
}

// Records of a ledger without a chain are named.
func TestImportUnchained(t *testing.T) {
	from := t.TempDir()
	e := sampleEntry(0)
	plant(t, from, e)
	chained, runs := contenders(t, 1)
	r, err := open(t, t.TempDir()).Import(t.Context(), from, chained.runPath(runs[0].ID))
	if want := []string{"runs/" + e.ID}; err != nil || !slices.Equal(r.Unchained, want) {
		t.Errorf("%+v, %v, want %q", r, err, want)
	}
}
