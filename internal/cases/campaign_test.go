package cases_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"attune/internal/cases"
	"attune/internal/crash"
	"attune/internal/sim"
	"attune/internal/sim/mem"
)

var (
	mutants     = flag.Int("mutants", 300, "mutated cases that TestMutants runs")
	firstMutant = flag.Int("first-mutant", 0, "number of the first one")
	largest     = flag.Int("largest", 4000, "bytes of the largest PTX that TestMutants mutates")
	keepMutants = flag.String("keep-mutants", "", "folder for the mutants that fail")
)

// What no case may exceed, whatever it contains.
const (
	mutantSteps  = 20_000          // warp instructions of a block
	mutantLimit  = 2 * time.Second // after which a run is cancelled
	mutantSlack  = 58 * time.Second
	mutantMemory = 4 << 30 // bytes of the process
)

// runMutant runs a mutated case for at most a limit. The case may fail in any way that is an error.
// It reports whether the case ran to its end.
func runMutant(ctx context.Context, folder, text, ptx string, seed uint64, limit time.Duration) (ran bool, err error) {
	file := filepath.Join(folder, "case.json")
	name := ptxName.FindStringSubmatch(text)
	if name == nil {
		return false, nil
	}
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.WriteFile(filepath.Join(folder, name[1]), []byte(ptx), 0o644)); err != nil {
		return false, err
	}
	c, err := cases.Load(file)
	if err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = c.Run(ctx, sim.Options{Seed: seed, Checks: seed%4 != 3, MaxSteps: mutantSteps, Printf: func(string) {}})
	var p *crash.Panic
	if errors.As(err, &p) {
		return false, fmt.Errorf("%w\n%s", p, p.Stack)
	}
	return err == nil, nil
}

var ptxName = regexp.MustCompile(`"ptx": ?"([\w.+-]+)"`)

// peakBytes returns the largest size that the process had since the last call, and 0 where the
// system does not tell.
func peakBytes() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	kib, _ := strconv.Atoi(string(number))
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // begins to count again, where that is allowed
	return kib << 10
}

// TestMutants runs mutated cases of the repository: none may panic, run on after its limits, or take
// more than 4 GiB. `go test ./internal/cases -run TestMutants -mutants 20000` is the whole campaign;
// a mutant is identified by its number.
func TestMutants(t *testing.T) {
	all := corpus(t, *largest)
	m := newMutator(all)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(mem.DefaultLimit + mem.DefaultLimit/2)) // as in attune sim
	n := *mutants
	if testing.Short() {
		n = min(n, 8)
	}
	ran, panics, late, large, peak := 0, 0, 0, 0, 0
	slowest := time.Duration(0)
	folder := t.TempDir()
	for i := *firstMutant; i < *firstMutant+n; i++ {
		c := &chooser{random: rand.New(rand.NewPCG(19, uint64(i)))}
		from, edits := pick(c, all), 1+c.below(2)*c.below(3)
		if c.below(8) == 0 {
			from = pick(c, handwritten)
		}
		if c.below(10) == 0 {
			edits += c.below(6)
		}
		text, ptx := m.mutate(c, from, edits)
		began := time.Now()
		ok, err := runMutant(t.Context(), folder, text, ptx, uint64(i), mutantLimit)
		took := time.Since(began)
		if ok {
			ran++
		}
		if err != nil {
			panics++
			keep(t, i, text, ptx)
			t.Errorf("mutant %d: %v", i, err)
		}
		if slowest = max(slowest, took); took > mutantLimit+mutantSlack {
			late++
			keep(t, i, text, ptx)
			t.Errorf("mutant %d ended after %v", i, took)
		}
		bytes := peakBytes()
		if peak = max(peak, bytes); bytes > mutantMemory {
			large++
			keep(t, i, text, ptx)
			t.Errorf("mutant %d takes %d MiB", i, bytes>>20)
		}
		if took > mutantLimit+time.Second || bytes > mutantMemory/2 {
			t.Logf("mutant %d took %v and %d MiB", i, took, bytes>>20)
		}
	}
	t.Logf("%d mutants from %d on, of %d cases: %d ran to the end; %d panics, %d ended late, %d took over %d MiB; slowest %v, largest %d MiB",
		n, *firstMutant, len(all), ran, panics, late, large, mutantMemory>>20, slowest, peak>>20)
	if ran < n/5 {
		t.Errorf("%d of %d mutants ran to the end; the mutations are too coarse", ran, n)
	}
}

// keep stores a mutant that failed, with -keep-mutants.
func keep(t *testing.T, number int, text, ptx string) {
	t.Helper()
	name := ptxName.FindStringSubmatch(text)
	if *keepMutants == "" || name == nil {
		return
	}
	folder := filepath.Join(*keepMutants, fmt.Sprint(number))
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "case.json"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(folder, name[1]), []byte(ptx), 0o644)); err != nil {
		t.Error(err)
	}
}

// FuzzMutant mutates a case by the choices that the bytes encode. Under -short every tenth case is a
// seed.
func FuzzMutant(f *testing.F) {
	all := corpus(f, 2000)
	m := newMutator(all)
	for i := range all {
		if testing.Short() && i%10 != 0 {
			continue
		}
		f.Add(uint16(i), []byte{})
		f.Add(uint16(i), []byte{1, 0, 40, 1, 3, 0, 9, 7, 1, 1, 5, 2, 77, 0, 4, 0, 60, 0, 1, 0})
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, which uint16, choices []byte) {
		c := &chooser{data: choices}
		edits := 0
		if len(choices) > 0 {
			edits = 1 + c.below(4)
		}
		text, ptx := m.mutate(c, all[int(which)%len(all)], edits)
		// Without the panic the fuzzer would hang and not show the case.
		defer time.AfterFunc(time.Minute, func() { panic("BUG: the simulator hangs on\n" + text + "\n" + ptx) }).Stop()
		if _, err := runMutant(t.Context(), folder, text, ptx, uint64(which), mutantLimit); err != nil {
			t.Fatalf("%v\n%s\n%s", err, text, ptx)
		}
	})
}

// TestHandwrittenOriginals runs the handwritten kernels without a change. They end after milliseconds;
// the limit leaves room for a loaded machine.
func TestHandwrittenOriginals(t *testing.T) {
	for _, o := range handwritten {
		if ran, err := runMutant(t.Context(), t.TempDir(), o.json, o.ptx, 0, time.Minute); !ran || err != nil {
			t.Errorf("%s: ran %v, %v", o.file, ran, err)
		}
	}
}
