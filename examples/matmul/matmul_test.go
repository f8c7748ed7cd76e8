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
	"attune/internal/fp8"
	"attune/internal/mutate"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/sim/finding"
	"attune/internal/toolchain"
)

// The PTX here must be what the source gives today, byte for byte.
func TestPTXIsWhatTheSourceGives(t *testing.T) {
	want, err := compile(t.Context())
	var refused *toolchain.CompileError
	switch {
	case errors.As(err, &refused):
		t.Fatal(err)
	case err != nil:
		t.Skipf("the pinned compiler is needed: %v", err)
	}
	if !bytes.Equal(kernelPTX, want) {
		t.Error("matmul.ptx is not what matmul.cu gives; run `go run ./examples/matmul`")
	}
}

// The cases here must be those of this program: launch, inputs, expectation. What they say of themselves may change when they are recorded.
func TestCasesAreWhatTheProgramGives(t *testing.T) {
	for file, p := range shipped {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !sameCase(text, p.caseJSON()) {
			t.Errorf("%s is not what the program gives; run `go run ./examples/matmul`", file)
		}
	}
}

// A tensor core keeps 13 bits behind the point of the largest of what it adds: 32 products and the sum so far, each cut off, and then the sum is.
// Every step loses less than 34 units of the last of them.
const (
	sumBits   = 13
	unitsLost = 34
)

// The expectation is held against float64, within what the accumulators of FP8 products lose.
func TestExpectationAgainstFloat64(t *testing.T) {
	problems := []problem{{m: 8, n: 16, k: 1024}}
	for _, p := range shipped {
		problems = append(problems, p)
	}
	for _, p := range problems {
		a, b := p.inputs()
		c := p.product()
		for i := range p.m {
			for j := range p.n {
				exact, limit, spread := dot(a[i*p.k:][:p.k], b[j*p.k:][:p.k])
				got := float64(math.Float32frombits(binary.LittleEndian.Uint32(c[4*(i*p.n+j):])))
				if math.Abs(got-exact) > limit {
					t.Fatalf("%dx%dx%d: element (%d, %d) is %g, exactly %g, and may be %g off", p.m, p.n, p.k, i, j, got, exact, limit)
				}
				if limit > spread/3 {
					t.Fatalf("%dx%dx%d: element (%d, %d) may be %g off, where any such sum is about %g: that says little", p.m, p.n, p.k, i, j, limit, spread)
				}
			}
		}
	}
}

// dot gives the exact sum of products, how far off a tensor core may be, and how far from zero a sum of such products is.
func dot(a, b []byte) (sum, limit, spread float64) {
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
		limit += unitsLost * math.Ldexp(largest, -sumBits)
		a, b = a[n:], b[n:]
	}
	return sum, limit, math.Sqrt(squares)
}

// TestCasesPass runs the cases under several schedules, with nothing found and every bit right.
func TestCasesPass(t *testing.T) {
	for file := range shipped {
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

// A case of any size is written with its PTX, and passes; what cannot be copied is refused.
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
			t.Errorf("%q is taken", args)
		}
	}
}

// TestNamedBreaks: each of the things that keep such a kernel right is broken once, and the simulator says what.
func TestNamedBreaks(t *testing.T) {
	check := func(name, old, changed string, want ...finding.Kind) {
		t.Helper()
		text := breakOnce(t, string(kernelPTX), old, changed)
		outcome := runBroken(t, text, readSmall(t))
		kinds := map[finding.Kind]bool{}
		for _, f := range outcome.Findings {
			kinds[f.Kind] = true
		}
		for _, k := range want {
			if !kinds[k] {
				t.Errorf("%s: it finds %v, want %s", name, outcome.Findings, k)
			}
		}
		if len(want) == 0 && (len(outcome.Findings) > 0 || len(outcome.Mismatches) == 0) {
			t.Errorf("%s: it finds %v, mismatches %v; want other numbers and nothing else", name, outcome.Findings, outcome.Mismatches)
		}
	}
	const out = "// left out"
	// Fences.
	check("fence of the proxies", `fence\.proxy\.async\.shared::cta;`, out, finding.MissingFence)
	check("fence of other memory", `fence\.proxy\.async\.shared::cta;`, "fence.proxy.async.global;", finding.MissingFence)
	check("fence of the registers", `wgmma\.fence\.sync\.aligned;`, out, finding.MissingFence)
	// Waits. The first loop is the producer's, for an empty stage, the second the consumers', for a full one.
	check("wait for the products", `wgmma\.wait_group\.sync\.aligned 0;`, out, finding.MissingWait)
	check("wait for fewer products", `wgmma\.wait_group\.sync\.aligned 0;`, "wgmma.wait_group.sync.aligned 1;", finding.MissingWait)
	check("products in no group", `wgmma\.commit_group\.sync\.aligned;`, out, finding.MissingWait)
	check("wait for an empty stage", `^.*?(mbarrier\.try_wait[^;]*;)`, "setp.eq.s32 done, 0, 0;", finding.MissingWait)
	check("wait for a full stage", `^.*?again:.*?again:.*?(mbarrier\.try_wait[^;]*;)`, "setp.eq.s32 done, 0, 0;", finding.MissingWait)
	check("wait for the stores", `cp\.async\.bulk\.wait_group\.read 0;`, out, finding.MissingWait)
	check("stores in no group", `cp\.async\.bulk\.commit_group;`, out, finding.MissingWait)
	// Arrivals, and those who are expected.
	check("arrival of the consumers", `mbarrier\.arrive\.shared::cta\.b64 _, [^;]*;`, out, finding.Deadlock)
	check("arrival of the producer", `mbarrier\.arrive\.expect_tx[^;]*;`, out, finding.Deadlock)
	check("one warp too many", `%r\d+, (8;)\s+// begin inline asm\s+mbarrier\.init`, "9;", finding.Deadlock)
	check("one warp too few", `%r\d+, (8;)\s+// begin inline asm\s+mbarrier\.init`, "7;", finding.Race)
	// Bytes.
	check("16 bytes too many", `mov\.u32\s+%r\d+, (32768);`, "32784", finding.Deadlock)
	check("16 bytes too few", `mov\.u32\s+%r\d+, (32768);`, "32752", finding.BadBarrier)
	// Parities.
	check("parity of the producer", `(not\.b32)`, "mov.b32", finding.Deadlock)
	check("parity of the consumers", `shr\.u32\s+%r\d+, %r\d+, (1);\s+and\.b32\s+%r\d+, %r\d+, 1;`, "0", finding.Deadlock)
	// Registers.
	check("registers kept", `setmaxnreg\.dec[^;]*;`, out, finding.Deadlock)
	// Descriptors: another swizzle (64 bytes), and other 8 rows.
	descriptor := func(stride, swizzle int64) string { return strconv.FormatInt(stride>>4<<32|swizzle<<62, 10) }
	check("swizzle of a descriptor", "("+descriptor(1024, 1)+")", descriptor(1024, 2))
	check("stride of a descriptor", "("+descriptor(1024, 1)+")", descriptor(512, 1))
}

// breakOnce changes the first place that a pattern matches, or its group where it has one.
func breakOnce(t *testing.T, text, pattern, changed string) string {
	t.Helper()
	at := regexp.MustCompile("(?s)" + pattern).FindStringSubmatchIndex(text)
	if at == nil {
		t.Fatalf("the PTX has no %s", pattern)
	}
	at = at[len(at)-2:]
	return text[:at[0]] + changed + text[at[1]:]
}

func readSmall(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("small.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runBroken runs a case with other PTX.
func runBroken(t *testing.T, kernel string, text []byte) *cases.Outcome {
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

// The swizzle of a tensor map must be that of the descriptors.
func TestSwizzleOfTensorMap(t *testing.T) {
	for arg, before := range []string{`"arg":0,`, `"arg":1,`, `"arg":2,`} {
		text := string(readSmall(t))
		at := strings.Index(text, before)
		if at < 0 {
			t.Fatalf("the case has no tensor map of argument %d", arg)
		}
		changed := text[:at] + strings.Replace(text[at:], `"swizzle":"128B"`, `"swizzle":"none"`, 1)
		if outcome := runBroken(t, string(kernelPTX), []byte(changed)); len(outcome.Findings) > 0 || len(outcome.Mismatches) == 0 {
			t.Errorf("argument %d: it finds %v, mismatches %v; want other numbers and nothing else", arg, outcome.Findings, outcome.Mismatches)
		}
	}
}

// Every instruction of the kernel can be broken; only the end cannot.
func TestEveryLineHasMutants(t *testing.T) {
	all, err := mutate.All(kernelPTX, "matmul")
	if err != nil {
		t.Fatal(err)
	}
	broken := map[int]bool{}
	for _, m := range all {
		broken[m.Line] = true
	}
	module, err := ptx.Parse(kernelPTX)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range module.Functions[0].Code {
		if !broken[in.Line] && in.Opcode != "ret" {
			t.Errorf("line %d has no mutant: %s", in.Line, strings.Split(string(kernelPTX), "\n")[in.Line-1])
		}
	}
	t.Logf("%d mutants of %d lines", len(all), len(broken))
}

// A sample of all mutants, the same every time: at least 95 in 100 are caught.
func TestKillRate(t *testing.T) {
	const sample = 24
	c, err := cases.Load("small.json")
	if err != nil {
		t.Fatal(err)
	}
	request := cases.MutationRequest{Options: sim.Options{Checks: true}, Limit: 10 * time.Minute, Count: sample, Seed: 4}
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
		t.Errorf("%d of %d mutants are killed; these survive: %+v", report.Killed, report.Mutants, report.Survivors)
	}
	if report.Possible < 500 || len(report.ByKind) < 8 {
		t.Errorf("of %d possible mutants %v were tried, which says less than it should", report.Possible, report.ByKind)
	}
}

// BenchmarkProduct is the product of 1024 by 1024 by 1024 under all checkers.
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
