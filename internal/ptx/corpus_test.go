package ptx

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/rotate"
	"attune/internal/toolchain"
)

const mangledTexts = 400 // per input of TestMangled

var update = flag.Bool("update", false, "rewrite the golden files")

// corpus returns the PTX of the project: compiler output and handwritten texts.
func corpus(tb testing.TB) map[string][]byte {
	tb.Helper()
	texts := map[string][]byte{}
	for _, pattern := range []string{
		"testdata/*.ptx", "../cases/testdata/recorded/*.ptx", "../cases/testdata/defects/*.ptx", "../../kernels/ptx/*.ptx.zst", "../../kernels/*/*/ptx/*.ptx.zst",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			tb.Fatalf("no files %s (%v)", pattern, err)
		}
		for i, path := range paths {
			due, err := rotate.Due(i, 4)
			if err != nil {
				tb.Fatal(err)
			}
			if due || !strings.HasSuffix(path, ".zst") { // hundreds are shipped, and they are alike
				texts[path] = readText(tb, path)
			}
		}
	}
	return texts
}

func readText(tb testing.TB, path string) []byte {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err == nil && strings.HasSuffix(path, ".zst") {
		text, err = toolchain.UnpackPTX(text)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for path, text := range corpus(t) {
		module, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		checkLines(t, path, string(text), module)
		checkRoundTrip(t, path, module)
	}
}

// checkLines checks that the line of every instruction contains its opcode and modifiers, and that
// the module has instructions.
func checkLines(t *testing.T, path, text string, module *Module) {
	t.Helper()
	lines := strings.Split(text, "\n")
	read := 0
	for _, f := range module.Functions {
		read += len(f.Code)
		for i := range f.Code {
			in := &f.Code[i]
			for _, word := range append([]string{in.Opcode}, in.Modifiers...) {
				if !strings.Contains(lines[in.Line-1], word) || !strings.Contains(in.String(), word) {
					t.Errorf("%s: line %d is %q, want the instruction %s", path, in.Line, lines[in.Line-1], in)
				}
			}
		}
	}
	if read == 0 {
		t.Errorf("%s: no instructions", path)
	}
}

// checkRoundTrip writes and parses a module twice. The first round fixes the order of the
// variables; the second round must change nothing.
func checkRoundTrip(tb testing.TB, path string, module *Module) {
	tb.Helper()
	texts := [3]string{write(module, false)}
	for i := range 2 {
		again, err := Parse([]byte(texts[i]))
		if err != nil {
			tb.Errorf("%s: parsing the written text: %v\n%s", path, err, texts[i])
			return
		}
		texts[i+1] = write(again, false)
	}
	if diff := cmp.Diff(texts[1], texts[2]); diff != "" {
		tb.Errorf("%s: the second round trip differs (-first +second):\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"forms", "forms_hand"} {
		module, err := Parse(readText(t, "testdata/"+name+".ptx"))
		if err != nil {
			t.Fatal(err)
		}
		golden := "testdata/" + name + ".golden"
		got := write(module, true)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(readText(t, golden)), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMangled deletes, duplicates, swaps and replaces tokens of valid texts. Parse must not panic
// on the results, and those that are still valid must survive a round trip.
func TestMangled(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var accepted int
	for _, name := range []string{"forms", "forms_hand"} {
		l := lexer{text: string(readText(t, "testdata/"+name+".ptx")), line: 1}
		var tokens []string
		for l.next(); l.tok.kind != eof; l.next() {
			tokens = append(tokens, l.text[l.previous.end:l.tok.end])
		}
		for range mangledTexts {
			mangle := slices.Clone(tokens)
			for range 1 + random.IntN(3) {
				i, j := random.IntN(len(mangle)), random.IntN(len(mangle))
				switch random.IntN(4) {
				case 0:
					mangle = slices.Delete(mangle, i, i+1)
				case 1:
					mangle = slices.Insert(mangle, i, mangle[i])
				case 2:
					mangle[i], mangle[j] = mangle[j], mangle[i]
				case 3:
					mangle[i] = mangle[j]
				}
			}
			text := strings.Join(mangle, "")
			if module, err := Parse([]byte(text)); err == nil {
				accepted++
				checkRoundTrip(t, "a mangled text", module)
				for _, f := range module.Functions {
					f.Reconvergence()
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("every mangled text was rejected, so the round trip was never tested")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(readText(f, "testdata/forms_hand.ptx"))
	for _, name := range []string{"cluster_multicast", "shfl", "flt_cvt_to_fp8"} {
		paths, _ := filepath.Glob("../cases/testdata/recorded/" + name + "*.ptx")
		for _, path := range paths {
			f.Add(readText(f, path))
		}
	}
	for _, body := range []string{
		"ret;", "bra L; L:", "{ .reg .b32 a; } @p ret;", "mov.u32 %r1, (1+2)*3 ? -4 : ~5;", "T: .branchtargets A; brx.idx %r1, T; A: trap;",
		".param .b32 a; call (a), f, (a);", "st.v2.u32 [%rd1+-4], {%r1, _};", ".shared .v2 .f32 x<3>, y[2][3];",
	} {
		f.Add([]byte(prelude + ".entry k(.param .u64 p0) { .reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .pred p; " + body + "}"))
	}
	f.Add([]byte(prelude + ".global .b8 x[] = {1, 0xFF(generic(x)+4)}; .const .f32 y[2][3] = {{1.5}, {0f00000000}};"))
	f.Add([]byte(prelude + ".loc 1 2 3, function_name a+1, inlined_at 1 2 3\n.section .debug_str { a: .b8 1, 2, 0 }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		module, err := Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") {
				t.Errorf("the error %v has no line number", err)
			}
			return
		}
		registers := 0
		for _, function := range module.Functions {
			function.Reconvergence()
			registers += len(function.Registers) + len(function.Variables)
		}
		if registers < 1000 {
			checkRoundTrip(t, "the text", module)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, path := range []string{"../../kernels/ptx/stage2.sm_90a.ptx.zst", "testdata/forms.ptx"} {
		text := readText(b, path)
		b.Run(filepath.Base(path), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
