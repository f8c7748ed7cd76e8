package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"attune/internal/cases"
	"attune/internal/finding"
	"attune/internal/fp8"
	"attune/internal/mutate"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/toolchain"
)

// TestPTXIsCurrent requires that matmul.ptx is the compiler output for the current source, byte for
// byte.
func TestPTXIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs NVIDIA's compiler, which -short leaves out")
	}
	want, err := compile(t.Context())
	var rejected *toolchain.CompileError
	switch {
	case errors.As(err, &rejected):
		t.Fatal(err)
	case err != nil:
		t.Skipf("needs the pinned compiler: %v", err)
	}
	if !bytes.Equal(kernelPTX, want) {
		t.Error("matmul.ptx does not match matmul.cu; run `go run ./examples/matmul`")
	}
}

// TestCasesAreCurrent requires that the cases have the launch, inputs and expected output of this
// program.
func TestCasesAreCurrent(t *testing.T) {
	for file, p := range shippedProblems {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !sameCase(text, p.caseJSON()) {
			t.Errorf("%s is out of date; run `go run ./examples/matmul`", file)
		}
	}
}

// A tensor core adds 32 products and the accumulator per step. It truncates each term, and the sum,
// to 13 fraction bits below the largest. A step loses less than 34 units of the last of these bits.
const (
	fractionBits     = 13
	unitsLostPerStep = 34
)

// TestExpectedProductAgainstFloat64 compares the expected output with float64, within the error of
// the FP8 accumulators.
func TestExpectedProductAgainstFloat64(t *testing.T) {
	problems := []problem{{m: 8, n: 16, k: 1024}}
	for _, p := range shippedProblems {
		problems = append(problems, p)
	}
	for _, p := range problems {
		a, b := p.inputs()
		c := p.product()
		for i := range p.m {
			for j := range p.n {
				exact, limit, spread := exactDot(a[i*p.k:][:p.k], b[j*p.k:][:p.k])
				got := float64(math.Float32frombits(binary.LittleEndian.Uint32(c[4*(i*p.n+j):])))
				if math.Abs(got-exact) > limit {
					t.Fatalf("%dx%dx%d: element (%d, %d) is %g, want %g within %g", p.m, p.n, p.k, i, j, got, exact, limit)
				}
				if limit > spread/3 {
					t.Fatalf("%dx%dx%d: the tolerance %g of element (%d, %d) is too wide for sums of about %g", p.m, p.n, p.k, limit, i, j, spread)
				}
			}
		}
	}
}

// exactDot returns the exact sum of products, the error bound of a tensor core, and the standard
// deviation of such a sum.
func exactDot(a, b []byte) (sum, limit, spread float64) {
	squares := 0.0
	for len(a) > 0 {
		n := min(32, len(a))
		largest := math.Abs(sum) + limit
		for k := range n {
			product := float64(fp8.E4M3(a[k]).Float32()) * float64(fp8.E4M3(b[k]).Float32())
			largest = max(largest, math.Abs(product))
			sum += product
			squares += product * product
		}
		largest = max(largest, math.Abs(sum)+limit)
		limit += unitsLostPerStep * math.Ldexp(largest, -fractionBits)
		a, b = a[n:], b[n:]
	}
	return sum, limit, math.Sqrt(squares)
}

// TestCasesPass runs the cases under several schedules: no findings, and every bit of C as
// expected.
func TestCasesPass(t *testing.T) {
	for file := range shippedProblems {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) {
			outcome, err := c.Run(t.Context(), sim.Options{Checks: true, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			if !outcome.Pass {
				t.Errorf("%s, seed %d: %v %v", file, seed, outcome.Findings, outcome.Mismatches)
			}
		}
	}
}

// TestCaseOfAnySize checks that a case of another size passes, and that unsupported sizes are
// rejected.
func TestCaseOfAnySize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "any.json")
	if err := run(t.Context(), []string{"192", "132", "272", file}); err != nil {
		t.Fatal(err)
	}
	c, err := cases.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := c.Run(t.Context(), sim.Options{Checks: true})
	if err != nil || !outcome.Pass {
		t.Errorf("%+v, %v", outcome, err)
	}
	for _, args := range [][]string{{"1"}, {"8", "8", "eight", file}, {"8", "8", "8", file}, {"8", "6", "16", file}, {"0", "4", "16", file}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("accepted the arguments %q", args)
		}
	}
}

// TestDefectsAreFound removes or changes each synchronisation of the kernel once. The simulator
// must report the expected kind of finding.
func TestDefectsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates dozens of defects")
	}
	check := func(name, old, changed string, want ...finding.Kind) {
		t.Helper()
		text := replaceFirst(t, string(kernelPTX), old, changed)
		outcome := runModified(t, text, readSmallCase(t))
		kinds := map[finding.Kind]bool{}
		for _, f := range outcome.Findings {
			kinds[f.Kind] = true
		}
		for _, k := range want {
			if !kinds[k] {
				t.Errorf("%s: findings %v, want %s", name, outcome.Findings, k)
			}
		}
		if len(want) == 0 && (len(outcome.Findings) > 0 || len(outcome.Mismatches) == 0) {
			t.Errorf("%s: findings %v, mismatches %v; want mismatches only", name, outcome.Findings, outcome.Mismatches)
		}
	}
	const removed = "// removed"
	// Fences.
	check("no proxy fence", `fence\.proxy\.async\.shared::cta;`, removed, finding.MissingFence)
	check("proxy fence of another state space", `fence\.proxy\.async\.shared::cta;`, "fence.proxy.async.global;", finding.MissingFence)
	check("no wgmma fence", `wgmma\.fence\.sync\.aligned;`, removed, finding.MissingFence)
	// Waits. The first loop is the producer's wait for an empty stage, the second the consumers'
	// wait for a full one.
	check("no wait for wgmma", `wgmma\.wait_group\.sync\.aligned 0;`, removed, finding.MissingWait)
	check("one wgmma group too many in flight", `wgmma\.wait_group\.sync\.aligned 0;`, "wgmma.wait_group.sync.aligned 1;", finding.MissingWait)
	check("wgmma not committed", `wgmma\.commit_group\.sync\.aligned;`, removed, finding.MissingWait)
	check("no wait for an empty stage", `^.*?(mbarrier\.try_wait[^;]*;)`, "setp.eq.s32 done, 0, 0;", finding.MissingWait)
	check("no wait for a full stage", `^.*?again:.*?again:.*?(mbarrier\.try_wait[^;]*;)`, "setp.eq.s32 done, 0, 0;", finding.MissingWait)
	check("no wait for the stores", `cp\.async\.bulk\.wait_group\.read 0;`, removed, finding.MissingWait)
	check("stores not committed", `cp\.async\.bulk\.commit_group;`, removed, finding.MissingWait)
	// Arrivals and arrival counts.
	check("consumers do not arrive", `mbarrier\.arrive\.shared::cta\.b64 _, [^;]*;`, removed, finding.Deadlock)
	check("producer does not arrive", `mbarrier\.arrive\.expect_tx[^;]*;`, removed, finding.Deadlock)
	check("arrival count too large", `%r\d+, (8;)\s+// begin inline asm\s+mbarrier\.init`, "9;", finding.Deadlock)
	// Seven arrivals would do: they are of both warpgroups, and a wait of one warp covers the reads of
	// its warpgroup.
	check("arrival count too small", `%r\d+, (8;)\s+// begin inline asm\s+mbarrier\.init`, "4;", finding.Deadlock)
	// Bytes.
	check("16 bytes too many expected", `mov\.u32\s+%r\d+, (32768);`, "32784", finding.Deadlock)
	check("16 bytes too few expected", `mov\.u32\s+%r\d+, (32768);`, "32752", finding.BadBarrier)
	// Parities.
	check("parity of the producer", `(not\.b32)`, "mov.b32", finding.Deadlock)
	check("parity of the consumers", `shr\.u32\s+%r\d+, %r\d+, (1);\s+and\.b32\s+%r\d+, %r\d+, 1;`, "0", finding.Deadlock)
	// Registers.
	check("producer keeps its registers", `setmaxnreg\.dec[^;]*;`, removed, finding.Deadlock)
	// Descriptors: the 64-byte swizzle, and another stride between groups of 8 rows.
	descriptor := func(stride, swizzle int64) string { return strconv.FormatInt(stride>>4<<32|swizzle<<62, 10) }
	check("swizzle of a descriptor", "("+descriptor(1024, 1)+")", descriptor(1024, 2))
	check("stride of a descriptor", "("+descriptor(1024, 1)+")", descriptor(512, 1))
}

// replaceFirst replaces the first match of a pattern, or of its group if it has one.
func replaceFirst(t *testing.T, text, pattern, changed string) string {
	t.Helper()
	at := regexp.MustCompile("(?s)" + pattern).FindStringSubmatchIndex(text)
	if at == nil {
		t.Fatalf("the PTX has no %s", pattern)
	}
	at = at[len(at)-2:]
	return text[:at[0]] + changed + text[at[1]:]
}

func readSmallCase(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("small.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runModified runs a case with other PTX.
func runModified(t *testing.T, kernel string, text []byte) *cases.Outcome {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "case.json")
	for name, data := range map[string][]byte{file: text, filepath.Join(folder, "matmul.ptx"): []byte(kernel)} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := cases.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := c.Run(t.Context(), sim.Options{Checks: true, MaxSteps: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// TestTensorMapSwizzle checks that a swizzle of a tensor map other than that of the descriptors
// gives a wrong result.
func TestTensorMapSwizzle(t *testing.T) {
	for arg, before := range []string{`"arg":0,`, `"arg":1,`, `"arg":2,`} {
		text := string(readSmallCase(t))
		at := strings.Index(text, before)
		if at < 0 {
			t.Fatalf("the case has no tensor map of argument %d", arg)
		}
		changed := text[:at] + strings.Replace(text[at:], `"swizzle":"128B"`, `"swizzle":"none"`, 1)
		if outcome := runModified(t, string(kernelPTX), []byte(changed)); len(outcome.Findings) > 0 || len(outcome.Mismatches) == 0 {
			t.Errorf("argument %d: findings %v, mismatches %v; want mismatches only", arg, outcome.Findings, outcome.Mismatches)
		}
	}
}

// TestEveryLineHasMutants checks that every instruction of the kernel except ret has a mutant.
func TestEveryLineHasMutants(t *testing.T) {
	all, err := mutate.All(kernelPTX, "matmul")
	if err != nil {
		t.Fatal(err)
	}
	mutated := map[int]bool{}
	for _, m := range all {
		mutated[m.Line] = true
	}
	module, err := ptx.Parse(kernelPTX)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range module.Functions[0].Code {
		if !mutated[in.Line] && in.Opcode != "ret" {
			t.Errorf("line %d has no mutant: %s", in.Line, strings.Split(string(kernelPTX), "\n")[in.Line-1])
		}
	}
	t.Logf("%d mutants of %d lines", len(all), len(mutated))
}

// TestKillRate requires that at least 95 % of a fixed sample of mutants are killed.
func TestKillRate(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates dozens of mutants")
	}
	const sample = 24
	c, err := cases.Load("small.json")
	if err != nil {
		t.Fatal(err)
	}
	request := cases.MutationRequest{Options: sim.Options{Checks: true}, RunTimeout: 10 * time.Minute, Count: sample, Seed: 4}
	if cacheDir, err := toolchain.CacheDir(); err == nil {
		if compiler, err := toolchain.Installed(t.Context(), cacheDir); err == nil {
			request.Assemble = func(ctx context.Context, text []byte, arch string) (string, error) {
				return toolchain.Assemble(ctx, compiler, text, arch)
			}
		}
	}
	report, err := c.Mutate(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if report.Mutants != sample || report.KillRate < 0.95 {
		t.Errorf("killed %d of %d mutants; survivors: %+v", report.Killed, report.Mutants, report.Survivors)
	}
	if report.Possible < 500 || len(report.ByKind) < 8 {
		t.Errorf("%d possible mutants, tried by kind %v; want at least 500 mutants and 8 kinds", report.Possible, report.ByKind)
	}
}

// BenchmarkProduct runs a 1024 x 1024 x 1024 product under all checkers.
func BenchmarkProduct(b *testing.B) {
	file := filepath.Join(b.TempDir(), "large.json")
	if err := run(b.Context(), []string{"1024", "1024", "1024", file}); err != nil {
		b.Fatal(err)
	}
	c, err := cases.Load(file)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		outcome, err := c.Run(b.Context(), sim.Options{Checks: true})
		if err != nil || !outcome.Pass {
			b.Fatalf("%v %v", outcome, err)
		}
	}
}
