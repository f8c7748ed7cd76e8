package cases_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/cases"
	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/sim"
)

// TestRecorded compares the simulator with the output of an H200, bit for bit unless a case sets
// ulp_f32. The checkers must report nothing.
func TestRecorded(t *testing.T) {
	t.Parallel()
	runFolder(t, "recorded")
}

// TestDefects runs the checkers on kernels with one known defect and on their correct counterparts.
func TestDefects(t *testing.T) {
	t.Parallel()
	runFolder(t, "defects")
}

// TestHandwritten runs further defects and correct counterparts, handwritten in PTX.
func TestHandwritten(t *testing.T) {
	t.Parallel()
	runFolder(t, "more")
}

// runFolder runs all cases of a folder. Every PTX file must belong to a case, so that none is left out.
// By its name a case is either defective or the correct counterpart (_ok) of a defect; recorded cases
// have no defect.
func runFolder(t *testing.T, folder string) {
	unused := map[string]bool{}
	for _, file := range filesIn(t, folder, "*.ptx") {
		unused[filepath.Base(file)] = true
	}
	for _, file := range filesIn(t, folder, "*.json") {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		delete(unused, c.PTX)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if correct := folder == "recorded" || strings.HasSuffix(name, "_ok"); correct == isDefect(c) {
			t.Errorf("%s/%s expects the findings %v, which contradicts its name", folder, name, c.Expect.Findings)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkPasses(t, c)
		})
	}
	for name := range unused {
		t.Errorf("no case runs %s/%s", folder, name)
	}
}

// filesIn returns the files of a folder of testdata. It fails if there is none.
func filesIn(t *testing.T, folder, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/%s has no %s: %v", folder, pattern, err)
	}
	return files
}

// checkPasses requires that a case passes under every schedule, with the checkers on and off.
func checkPasses(t *testing.T, c *cases.Case) {
	c.Strict = true
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		checkRun(t, c, sim.Options{Seed: seed, Checks: true, Workers: 1 + int(seed%3)})
	}
	if len(c.Expect.Findings) == 0 { // the output of a defective kernel is undefined
		checkRun(t, c, sim.Options{})
	}
}

func checkRun(t *testing.T, c *cases.Case, o sim.Options) {
	outcome, err := c.Run(t.Context(), o)
	if err != nil {
		t.Fatalf("seed %d, checks %v: %v", o.Seed, o.Checks, err)
	}
	if !outcome.Pass {
		t.Errorf("seed %d, checks %v: the case fails\nexpected %v or %v, also %v\nfound %v\nmismatches %v",
			o.Seed, o.Checks, c.Expect.Findings, c.Expect.Or, c.Expect.Also, outcome.Findings, outcome.Mismatches)
	}
	if !o.Checks && len(outcome.Findings) > 0 {
		t.Errorf("findings with the checkers off: %v", outcome.Findings)
	}
}

// copyPTX computes out[i] = in[i] + n for 8 threads.
const copyPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.u32 %r3, [%rd4];
	add.u32 %r4, %r3, %r1;
	st.global.u32 [%rd5], %r4;
	ret;
}
`

// writeCase writes a case and its PTX into a folder.
func writeCase(t testing.TB, folder, text string) string {
	file := filepath.Join(folder, "case.json")
	for name, data := range map[string]string{file: text, filepath.Join(folder, "k.ptx"): copyPTX} {
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// words encodes values as the hex of little-endian words.
func words(values ...uint32) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "%02x%02x%02x%02x", byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return b.String()
}

// caseText is a case of copyPTX with replacements applied.
func caseText(changes ...string) string {
	text := fmt.Sprintf(`{"ptx": "k.ptx", "arch": "sm_80", "entry": "k", "grid": [1,1,1], "block": [8,1,1], "shared": 0,
"args": [{"hex": %q}, {"bytes": 32}, {"u32": 5}],
"expect": {"args": {"1": {"hex": %q}}, "findings": []}}`, words(1, 2, 3, 4, 5, 6, 7, 8), words(6, 7, 8, 9, 10, 11, 12, 13))
	return strings.NewReplacer(changes...).Replace(text)
}

func TestOutcome(t *testing.T) {
	check := func(name, text string, want cases.Outcome) {
		t.Helper()
		c, err := cases.Load(writeCase(t, t.TempDir(), text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := c.Run(t.Context(), sim.Options{Checks: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var kinds []string
		for _, f := range got.Findings {
			kinds = append(kinds, string(f.Kind))
		}
		if got.Pass != want.Pass || strings.Join(kinds, " ") != want.Error || fmt.Sprint(got.Mismatches) != fmt.Sprint(want.Mismatches) {
			t.Errorf("%s: pass %v, findings %v, mismatches %q\n"+
				"want %v, %v, %q", name, got.Pass, kinds, got.Mismatches, want.Pass, want.Error, want.Mismatches)
		}
		if got.Name != want.Name {
			t.Errorf("%s: name %q, want %q", name, got.Name, want.Name)
		}
	}
	// In these, Error holds the kinds of the findings.
	check("correct", caseText(), cases.Outcome{Name: "case.json", Pass: true})
	check("missing extents are 1", caseText(`"grid": [1,1,1]`, `"grid": [1]`, "[8,1,1]", "[8,1]"), cases.Outcome{Name: "case.json", Pass: true})
	check("named", caseText(`{"ptx"`, `{"name": "mine", "ptx"`), cases.Outcome{Name: "mine", Pass: true})
	check("one word wrong", caseText("08000000090000000a", "08000000190000000a"), cases.Outcome{
		Name: "case.json", Mismatches: []string{"argument 1: 1 of 32 bytes differ, the first at byte 12: got 09000000, want 19000000"},
	})
	check("an unexpected finding", caseText("[8,1,1]", "[9,1,1]"), cases.Outcome{Name: "case.json", Error: "out-of-bounds out-of-bounds"})
	check("an expected finding", caseText("[8,1,1]", "[9,1,1]", `"findings": []`, `"findings": ["out-of-bounds"]`),
		cases.Outcome{Name: "case.json", Pass: true, Error: "out-of-bounds out-of-bounds"})
	check("a finding accepted by or", caseText("[8,1,1]", "[9,1,1]", `"findings": []`, `"findings": ["race"], "or": ["out-of-bounds"]`),
		cases.Outcome{Name: "case.json", Pass: true, Error: "out-of-bounds out-of-bounds"})
	check("an additional finding is not enough", caseText("[8,1,1]", "[9,1,1]", `"findings": []`, `"findings": ["race"], "also": ["out-of-bounds"]`),
		cases.Outcome{Name: "case.json", Error: "out-of-bounds out-of-bounds"})
	check("a missing finding", caseText(`"findings": []`, `"findings": ["race"]`), cases.Outcome{Name: "case.json"})
	// As float32, 6 is 6 times the smallest subnormal.
	check("within ulps", caseText(`"hex": "06000000`, `"ulp_f32": 2, "hex": "08000000`), cases.Outcome{Name: "case.json", Pass: true})
	check("beyond ulps", caseText(`"hex": "06000000`, `"ulp_f32": 2, "hex": "09000000`), cases.Outcome{
		Name: "case.json", Mismatches: []string{"argument 1: float 0 is 8e-45 (0x00000006), want 1.3e-44 (0x00000009) within 2 ulps"},
	})
	check("any NaN for a NaN", caseText(words(1), words(0x7fc00000-5), `"hex": "06000000`, `"ulp_f32": 1, "hex": "010080ff`),
		cases.Outcome{Name: "case.json", Pass: true})
	check("a NaN for a number", caseText(words(1), words(0x7fc00000-5), `"hex": "06000000`, `"ulp_f32": 9, "hex": "06000000`), cases.Outcome{
		Name: "case.json", Mismatches: []string{"argument 1: float 0 is NaN (0x7fc00000), want 8e-45 (0x00000006) within 9 ulps"},
	})
	check("the largest float for an infinity", caseText(words(1), words(0x7f7fffff-5), `"hex": "06000000`, `"ulp_f32": 9, "hex": "0000807f`), cases.Outcome{
		Name: "case.json", Mismatches: []string{"argument 1: float 0 is 3.4028235e+38 (0x7f7fffff), want +Inf (0x7f800000) within 9 ulps"},
	})
	// -0 and +0 have the same order, and the least negative number is one step below.
	check("across zero", caseText(words(1), words(0x80000001-5), `"hex": "06000000`, `"ulp_f32": 2, "hex": "01000000`), cases.Outcome{Name: "case.json", Pass: true})
}

// TestStrict runs a case whose only finding is strict: it loads an uninitialised word that it does
// not use. The finding is a note, unless the case is strict or expects it.
func TestStrict(t *testing.T) {
	folder := t.TempDir()
	unused := strings.Replace(copyPTX, "\tadd.u32 %r4", "\tld.global.u32 %r5, [%rd5];\n\tadd.u32 %r4", 1)
	check := func(strict bool, want bool, changes ...string) {
		t.Helper()
		file := writeCase(t, folder, caseText(changes...))
		if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(unused), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		c.Strict = strict
		got, err := c.Run(t.Context(), sim.Options{Checks: true})
		if err != nil || got.Pass != want || len(got.Findings) != 1 || got.Findings[0].Severity != finding.Strict {
			t.Errorf("strict %v, %q: %+v, %v; want pass %v", strict, changes, got, err, want)
		}
	}
	check(false, true)
	check(true, false)
	for _, strict := range []bool{false, true} {
		check(strict, true, `"findings": []`, `"findings": ["uninitialized"]`)
		check(strict, true, `"findings": []`, `"findings": [], "also": ["uninitialized"]`)
		check(strict, false, `"findings": []`, `"findings": ["race"], "also": ["uninitialized"]`)
	}
	check(false, false, `"findings": []`, `"findings": ["race"]`)
}

// TestArguments passes every form of scalar argument to a kernel.
func TestArguments(t *testing.T) {
	const text = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 a, .param .u64 b, .param .f32 c, .param .u64 out)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u32 %r2, [c];
	st.global.u32 [%rd1], %r1;
	st.global.u32 [%rd1+4], %r2;
	st.global.u64 [%rd1+8], %rd2;
	ret;
}
`
	folder := t.TempDir()
	file := writeCase(t, folder, `{"ptx": "k.ptx", "entry": "k", "grid": [1,1,1], "block": [1,1,1],
"args": [{"u32": 4294967295}, {"u64": 18446744073709551615}, {"f32": -1.5}, {"bytes": 16}],
"expect": {"args": {"3": {"hex": "ffffffff0000c0bfffffffffffffffff"}}}}`)
	if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := cases.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	checkRun(t, c, sim.Options{Checks: true})
}

// TestCaseErrors checks that invalid cases are rejected with a message that locates the error.
func TestCaseErrors(t *testing.T) {
	check := func(name, text, want string) {
		t.Helper()
		err := loadAndRun(t, writeCase(t, t.TempDir(), text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", name, err, want)
		}
	}
	check("no JSON", "k.ptx", "invalid character")
	check("cut off", caseText()[:80], "unexpected end of the file in line 1")
	check("an unknown field", caseText(`"shared"`, `"colour": 1, "shared"`), `unknown key "colour"`)
	check("a string for a number", caseText("32}", `"many"}`), "line 2: args.bytes: found a string; expected an integer")
	check("too large a number", caseText(`"u32": 5`, `"u32": 4294967296`), "line 2: args.u32: found number 4294967296; expected an integer from 0 to 4294967295")
	check("no PTX", caseText("k.ptx", "none.ptx"), "case.json: open ")
	check("an endless PTX", caseText("k.ptx", "/dev/zero"), "/dev/zero: it is not a regular file")
	check("an unknown entry", caseText(`"entry": "k"`, `"entry": "q"`), `no entry function "q"`)
	check("an unsupported architecture", caseText("sm_80", "sm_10"), "sm_10")
	check("no threads", caseText("[8,1,1]", "[8,0,1]"), "every extent must be at least 1")
	check("an argument without a value", caseText(`{"u32": 5}`, `{}`),
		"argument 2 has 0 values; give exactly one of hex, bytes, scratch, u32, u64, f32, tensormap")
	check("too few arguments", caseText(`, {"u32": 5}`, ""), "2 arguments; the kernel takes 3 parameters")
	check("too many arguments", caseText(`{"u32": 5}`, `{"u32": 5}, {"u32": 6}`), "4 arguments; the kernel takes 3 parameters")
	check("half a byte", caseText(`{"hex": "0`, `{"hex": "`), "argument 0: hex: 63 digits; a byte has two")
	check("a negative size", caseText("32}", "-1}"), "allocate -1 bytes of simulated memory for argument 1")
	check("text after the case", caseText()+"{}", "case.json")
	check("a bracket after the case", caseText()+"}", "case.json")
	check("two values of one argument", caseText(`{"u32": 5}`, `{"u32": 5, "f32": 1}`), "argument 2 has 2 values")
	check("four extents", caseText("[8,1,1]", "[8,1,1,1]"), "case.json")
	check("no extents", caseText(`"grid": [1,1,1]`, `"grid": []`), "case.json")
	check("an unknown kind", caseText(`"findings": []`, `"findings": ["rcae"]`), "rcae")
	check("an unknown additional kind", caseText(`"findings": []`, `"findings": [], "also": ["Race"]`), "Race")
	check("a tensor map", caseText(`{"u32": 5}`, `{"tensormap": {"arg": 0}}`), "argument 2: encode a tensor map: its type is")
	check("expects of no argument", caseText(`"1": {`, `"one": {`), `expect.args: "one" is not the index of an argument`)
	check("expects of a scalar", caseText(`"1": {`, `"2": {`), "expect.args: argument 2: the argument is not a buffer")
	check("expects half a byte", caseText(`"1": {"hex": "0`, `"1": {"hex": "`), "expect.args: argument 1: hex: 63 digits; a byte has two")
	check("expects too much", caseText(words(13), words(13, 14)), "expect.args: argument 1: read simulated memory: 36 bytes")
}

func loadAndRun(t *testing.T, file string) error {
	c, err := cases.Load(file)
	if err != nil {
		return err
	}
	_, err = c.Run(t.Context(), sim.Options{Checks: true})
	return err
}

func TestLoadMissingFile(t *testing.T) {
	if c, err := cases.Load(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("loading a missing file: %v, %v", c, err)
	}
}

func TestBrokenPTX(t *testing.T) {
	folder := t.TempDir()
	file := writeCase(t, folder, caseText())
	if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(".version 8.0\n.target sm_80\nwhat is this\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := loadAndRun(t, file); err == nil || !strings.Contains(err.Error(), "case.json: k.ptx: ") {
		t.Errorf("invalid PTX: error %v", err)
	}
}

// FuzzCase loads arbitrary text and runs it if it is a small case. The result must be an outcome or
// an error.
func FuzzCase(f *testing.F) {
	f.Add(caseText())
	f.Add(caseText("[8,1,1]", "[1,1,64]", "32}", "4}"))
	f.Add(caseText(`{"u32": 5}`, `{"f32": 1e38}`))
	f.Add(caseText(`"hex": "0`, `"ulp_f32": 3, "hex": "0`))
	f.Add(`{"args": [{"hex": ""}], "expect": {"args": {"0": {"hex": ""}, "-1": {}}}}`)
	f.Add(`{"ptx": "..", "grid": [9223372036854775807, 2]}`)
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		c, err := cases.Load(writeCase(t, folder, text))
		if err != nil {
			if c != nil || !strings.Contains(err.Error(), "case.json") {
				t.Errorf("the case %v and the error %v", c, err)
			}
			return
		}
		c.PTX = "k.ptx"
		size := 0
		for _, a := range c.Args {
			if a.Bytes != nil {
				size = max(size, *a.Bytes)
			}
		}
		if size > 1<<16 || max(c.Grid[0], c.Grid[1], c.Grid[2]) > 4 {
			return
		}
		outcome, err := c.Run(t.Context(), sim.Options{Checks: true, MaxSteps: 1000})
		if p, ok := errors.AsType[*crash.Panic](err); ok {
			t.Fatalf("%v\n%s", p, p.Stack)
		}
		if (outcome == nil) == (err == nil) {
			t.Errorf("the outcome %v and the error %v", outcome, err)
		}
	})
}

// TestJobSizes checks that a job cannot be made of a size that is no size.
func TestJobSizes(t *testing.T) {
	for _, size := range []string{"-1", "99999999999999"} {
		c := loadText(t, caseText(`"bytes": 32`, `"bytes": `+size), copyPTX)
		if _, err := c.Job(0); err == nil || !strings.Contains(err.Error(), "case.json: argument 1: a buffer of "+size+" bytes") {
			t.Errorf("error %v for %s bytes", err, size)
		}
	}
}

// TestExtremeTensorMaps runs a case with tensor maps at the edges of what the driver accepts. A box
// larger than shared memory is a finding, and is not divided into pieces.
func TestExtremeTensorMaps(t *testing.T) {
	const file = "testdata/recorded/tma_load_2d_f32_oob_nan.json"
	run := func(change func(m *device.TensorMap)) (*cases.Outcome, error) {
		c, err := cases.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Args {
			if a.TensorMap != nil {
				change(a.TensorMap)
			}
		}
		return c.Run(t.Context(), sim.Options{Checks: true, MaxSteps: 100_000})
	}
	outcome, err := run(func(m *device.TensorMap) { m.Box, m.ElementStrides = []int{256, 256}, nil })
	if err != nil || len(outcome.Findings) == 0 || !strings.Contains(outcome.Findings[0].Detail, "a bulk copy of 262144 bytes; a block has at most 232448") {
		t.Errorf("a large box: %+v, %v", outcome, err)
	}
	if outcome, err = run(func(m *device.TensorMap) { m.Dims, m.Strides = []int{1 << 32, 1 << 32}, []int{1<<40 - 16} }); err != nil {
		t.Errorf("a large tensor: %+v, %v", outcome, err)
	}
	for name, change := range map[string]func(m *device.TensorMap){
		"no dimensions":      func(m *device.TensorMap) { m.Dims = nil },
		"six dimensions":     func(m *device.TensorMap) { m.Dims = []int{1, 1, 1, 1, 1, 1} },
		"a negative extent":  func(m *device.TensorMap) { m.Dims[1] = -1 },
		"a negative box":     func(m *device.TensorMap) { m.Box[0] = -1 << 63 },
		"a box of no size":   func(m *device.TensorMap) { m.Box[1] = 0 },
		"an element stride":  func(m *device.TensorMap) { m.ElementStrides = []int{1, 1 << 62} },
		"a negative stride":  func(m *device.TensorMap) { m.Strides[0] = -16 },
		"a missing stride":   func(m *device.TensorMap) { m.Strides = nil },
		"another argument":   func(m *device.TensorMap) { m.Arg = 99 },
		"a negative index":   func(m *device.TensorMap) { m.Arg = -1 },
		"an unknown swizzle": func(m *device.TensorMap) { m.Swizzle = "256B" },
	} {
		if outcome, err := run(change); err == nil || !strings.Contains(err.Error(), "tma_load_2d_f32_oob_nan: argument ") {
			t.Errorf("%s: %+v, %v", name, outcome, err)
		}
	}
}
