package propose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"attune/internal/profile"
	"attune/internal/spec"
)

const kernelText = `
name = "k"
[shapes]
small = { n = 64 }
[[arg]]
name = "x"
type = "f32"
shape = ["n"]
file = "inputs/x.npy"
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[launch]
grid = [1]
block = ["THREADS"]
[reference]
python = "reference.py"
[[knob]]
name = "THREADS"
values = [32, 64, 128]
default = 64
about = "threads of a block"
[[knob]]
name = "UNROLL"
values = [1, 2, 4]
default = 1
layer = "macro"
[[constraint]]
rule = "THREADS * UNROLL <= 256"
why = "the block has 256 elements"
`

const sourceText = "#include \"h.cuh\"\nextern \"C\" __global__ void k() {\n}\n"

func kernelFolder() fstest.MapFS {
	return fstest.MapFS{
		"kernel.toml": {Data: []byte(kernelText)}, "k.cu": {Data: []byte(sourceText)}, "h.cuh": {Data: []byte("// h\n")},
		"reference.py": {Data: []byte("one\n")}, "README.md": {Data: []byte("one\n")}, "inputs/x.npy": {Data: []byte("one\n")},
	}
}

func newSubject(t *testing.T) Subject {
	t.Helper()
	folder := kernelFolder()
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := kernel.Shapes("small")
	if err != nil {
		t.Fatal(err)
	}
	return Subject{
		Kernel: kernel, Default: kernel.Stages[0].Variant(), Objective: "cost", Shapes: shapes, Folder: folder,
		Sources: map[string][]byte{"k.cu": folder["k.cu"].Data, "h.cuh": folder["h.cuh"].Data},
	}
}

// setup is a proposer with its folder and the lines that it reports.
type setup struct {
	*Proposer
	t      *testing.T
	folder string
	notes  []string
}

func newSetup(t *testing.T, command []string, limits Limits) *setup {
	t.Helper()
	s := &setup{t: t, folder: t.TempDir()}
	s.Proposer = New(Options{Command: command, Limits: limits, Note: func(text string) { s.notes = append(s.notes, text) }}, newSubject(t))
	if err := s.Open(s.folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ask asks the program and returns the accepted proposals, as text.
func (s *setup) ask() []string {
	s.t.Helper()
	candidates, err := s.Ask(s.t.Context(), State{Evaluations: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, c := range candidates {
		text := fmt.Sprintf("%d %s", c.Proposal, c.Variant)
		if c.Patch != 0 {
			text += fmt.Sprintf(" patch %d of %s", c.Patch, c.Parent)
		}
		all = append(all, text)
	}
	return all
}

// events are the lines of the record, without their quotes.
func (s *setup) events() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.folder, RecordFile))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v\nwant %v", what, got, want)
	}
}

func TestProposals(t *testing.T) {
	t.Parallel()
	const diff = `--- k.cu\n+++ k.cu\n@@ -2,2 +2,3 @@\n extern \"C\" __global__ void k() {\n+  __syncthreads();\n }\n`
	s := newSetup(t, program(t, "say",
		`{"type":"proposals","variants":[{"knobs":{"THREADS":128,"UNROLL":2}},{"variant":"k+UNROLL=4"},{"knobs":{}}]}`,
		`{"type":"proposals","round":2,"patches":[{"diff":"`+diff+`","knobs":{"UNROLL":2},"about":"a barrier"}]}`,
		`{"type":"proposals","patches":[{"diff":"`+strings.Replace(diff, "sync", "__sync", 1)+`","parent":1}],"variants":[{"patch":1,"knobs":{"THREADS":32}}]}`,
		`{"type":"proposals"}`, `{"type":"done"}`), Limits{})
	expect(t, "variants", s.ask(), []string{"1 k+THREADS=128+UNROLL=2", "2 k+UNROLL=4", "3 k"})
	expect(t, "a patch", s.ask(), []string{"4 k+UNROLL=2 patch 1 of k+UNROLL=2"})
	expect(t, "a variant of it, and its successor", s.ask(), []string{"5 k+THREADS=32 patch 1 of patch 1", "6 k patch 2 of patch 1"})
	if err := s.Report(Result{Proposal: 6, Variant: "k", Patch: 2, Stage: "correctness", Reason: "wrong\n by far", Cost: 3}); err != nil {
		t.Fatal(err)
	}
	expect(t, "nothing yet", s.ask(), []string(nil))
	if s.Ended() {
		t.Error("ended too early")
	}
	s.ask()
	expect(t, "after done", s.Ended(), true)
	expect(t, "after done", s.ask(), []string(nil))
	expect(t, "notes", s.notes, []string(nil))
	got, err := os.ReadFile(filepath.Join(s.folder, "patch-1.diff"))
	if err != nil || !strings.HasPrefix(string(got), "--- a/k.cu\n+++ b/k.cu\n@@ -2,2 +2,3 @@\n") {
		t.Errorf("%q, %v", got, err)
	}
	want := `{"message_type":"proposal","round":1,"proposal":1,"variant":"k+THREADS=128+UNROLL=2","parent":"k"}
{"message_type":"proposal","round":1,"proposal":2,"variant":"k+UNROLL=4","parent":"k"}
{"message_type":"proposal","round":1,"proposal":3,"variant":"k","parent":"k"}
{"message_type":"proposal","round":2,"proposal":4,"variant":"k+UNROLL=2","patch":1,"parent":"k+UNROLL=2","about":"a barrier"}
{"message_type":"proposal","round":3,"proposal":5,"variant":"k+THREADS=32","patch":1,"parent":"patch 1"}
{"message_type":"proposal","round":3,"proposal":6,"variant":"k","patch":2,"parent":"patch 1"}
{"message_type":"result","proposal":6,"variant":"k","patch":2,"stage":"correctness","reason":"wrong by far","cost":3}
{"message_type":"done","round":5}
`
	expect(t, "the record", s.events(), want)
}

// The changed sources of a patch are those of the folder with the hunks applied; the folder itself
// does not change.
func TestPatchedSources(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	files, _, err := s.patched([]byte("--- a/h.cuh\n+++ b/h.cuh\n@@ -1 +1 @@\n-// h\n+#include \"new/n.cuh\"\n--- /dev/null\n+++ b/new/n.cuh\n@@ -0,0 +1 @@\n+// n\n"))
	if err != nil || string(files["h.cuh"]) != "#include \"new/n.cuh\"\n" || string(files["new/n.cuh"]) != "// n\n" || len(files) != 2 {
		t.Errorf("%q, %v", files, err)
	}
	if text, err := fs.ReadFile(s.Folder, "h.cuh"); err != nil || string(text) != "// h\n" {
		t.Errorf("the folder has %q, %v", text, err)
	}
}

func TestRefusedProposals(t *testing.T) {
	t.Parallel()
	patch := func(diff string) string {
		text, _ := json.Marshal(diff)
		return fmt.Sprintf(`"patches":[{"diff":%s}]`, text)
	}
	change := func(name, old string) string {
		return patch("--- " + name + "\n+++ " + name + "\n@@ -1 +1 @@\n-" + old + "\n+x\n")
	}
	for name, c := range map[string]struct{ proposals, want string }{
		"unknown knob":        {`"variants":[{"knobs":{"THREAD":64}}]`, `unknown knob "THREAD" in "k+THREAD=64"; did you mean "THREADS"?`},
		"value":               {`"variants":[{"knobs":{"THREADS":65}}]`, `THREADS=65 in "k+THREADS=65" is not allowed; allowed are 32, 64, 128`},
		"constraint":          {`"variants":[{"variant":"k+THREADS=128+UNROLL=4"}]`, `breaks the rule "THREADS * UNROLL <= 256" with THREADS=128, UNROLL=4: the block has 256 elements`},
		"unknown stage":       {`"variants":[{"variant":"j"}]`, `unknown stage "j"`},
		"variant is a flag":   {`"variants":[{"variant":true}]`, "where variant has a bool in place of a string"},
		"not one value":       {`"patches":[{"diff":"x","parent":{}}]`, "where parent has an object in place of an integer"},
		"both":                {`"variants":[{"variant":"k","knobs":{}}]`, `it has "variant" and "knobs"; one of them is enough`},
		"text as value":       {`"variants":[{"knobs":{"THREADS":"64"}}]`, `a variant is "{\"knobs\":{\"THREADS\":\"64\"}}", where knobs has a string in place of an integer`},
		"fraction":            {`"variants":[{"knobs":{"THREADS":64.5}}]`, "has a number 64.5 in place of an integer"},
		"no object":           {`"variants":[7]`, `a variant is "7", where it has a number in place of an object`},
		"no patch":            {`"variants":[{"patch":7}]`, "there is no patch 7"},
		"patch is a text":     {`"patches":["x"]`, `a patch is "\"x\"", where it has a string in place of an object`},
		"patch of a knob":     {`"patches":[{"diff":"x","knobs":{"A":1}}]`, `unknown knob "A"`},
		"parent":              {`"patches":[{"diff":"x","parent":3}]`, "the parent is patch 3, which does not exist"},
		"no diff":             {`"patches":[{}]`, "the diff changes no file"},
		"huge diff":           {patch(strings.Repeat("x", 2001)), "the diff has 2001 bytes; at most 2000 are accepted"},
		"absolute path":       {change("/etc/passwd", "x"), `the path "/etc/passwd" is absolute`},
		"parent folder":       {change("../k.cu", "x"), `the path "../k.cu" does not name a file of the kernel's folder`},
		"declaration":         {change("kernel.toml", ""), "kernel.toml is the declaration of the kernel; a patch must not change what is checked"},
		"reference":           {change("reference.py", "one"), "reference.py is the reference; a patch must not change what is checked"},
		"input":               {change("inputs/x.npy", "one"), "inputs/x.npy is an input; a patch must not change what is checked"},
		"no source":           {change("README.md", "one"), "README.md is not read by the build; a patch changes only h.cuh, k.cu"},
		"no file":             {change("none.cu", "one"), "there is no file none.cu"},
		"new script":          {patch("--- /dev/null\n+++ numpy.py\n@@ -0,0 +1 @@\n+x\n"), "numpy.py is no source; a patch adds only files that end in .cu"},
		"hunk":                {change("h.cuh", "// g"), `h.cuh:1: the hunk of line 3 of the diff does not fit: the line is "// h", the diff has "// g"`},
		"include":             {patch("--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+#include </etc/passwd>\n"), `h.cuh: #include "</etc/passwd>" is refused`},
		"changes nothing":     {patch("--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+// h\n"), "the diff changes nothing"},
		"too many variants":   {`"variants":[{},{},{},{},{}]`, "the answer has 5 variants; the first 3 are taken"},
		"the same diff twice": {`"patches":[{"diff":"--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"},{"diff":"--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"}]`, "it is patch 1 again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := DefaultLimits
			limits.PatchBytes, limits.Variants = 2000, 3
			s := newSetup(t, program(t, "say", `{"type":"proposals",`+c.proposals+"}"), limits)
			accepted := s.ask()
			if len(s.notes) == 0 || !strings.Contains(s.notes[0], c.want) || strings.Contains(s.notes[0], "\n") {
				t.Errorf("the note is %q\nwant %s", s.notes, c.want)
			}
			if last := s.last; len(last) != 1 || last[0].Stage != refusedStage || !strings.Contains(last[0].Reason, c.want) {
				t.Errorf("the program is told %v", last)
			}
			if !strings.Contains(s.events(), `"message_type":"refused"`) {
				t.Errorf("the record is %s", s.events())
			}
			if wantFaults := 1 - min(1, len(accepted)); s.faults != wantFaults {
				t.Errorf("%d faults; accepted %v", s.faults, accepted)
			}
		})
	}
}

// A selection, and a stage of another source, are not in the space.
func TestVariantOfAnotherStage(t *testing.T) {
	t.Parallel()
	folder := kernelFolder()
	folder["kernel.toml"].Data = []byte(kernelText + "[[stage]]\nname = \"k\"\n[[stage]]\nname = \"j\"\n")
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := Subject{Kernel: kernel, Default: kernel.Stages[0].Variant()}
	if _, err := s.variant("j", nil); err == nil || err.Error() != "it is a variant of j; the search is for variants of k" {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"dies":         {program(t, "die"), "the proposer exited (exit status 3): RuntimeError: no [31m luck"},
		"huge":         {program(t, "huge"), "the proposer sent a response of more than 65536 bytes"},
		"garbage":      {program(t, "say", "\x1b[31mLoading model"), `the proposer answered "[31mLoading model", which is not JSON`},
		"two values":   {program(t, "say", `{"type":"done"} {}`), "which is more than one JSON value"},
		"list":         {program(t, "say", "[]"), `the proposer answered "[]", where it has a list in place of an object`},
		"no type":      {program(t, "say", "{}"), `which has no "type"`},
		"other type":   {program(t, "say", `{"type":"propose"}`), `the proposer answered the type "propose"; there are "proposals" and "done"`},
		"wrong types":  {program(t, "say", `{"type":"proposals","variants":{}}`), "where variants has an object in place of a list"},
		"other round":  {program(t, "say", `{"type":"proposals","round":7}`), "the proposer answered round 7 in round 1"},
		"only refused": {program(t, "say", `{"type":"proposals","variants":[{"variant":"j"},{"variant":"i"}]}`), "the proposer made 2 proposals, all of which were refused"},
		"refused":      {program(t, "say", `{"type":"proposals","variants":[{"variant":"j"}]}`), "the proposer made 1 proposal, all of which were refused"},
		"no program":   {[]string{"/no/program"}, "the proposer does not start: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := DefaultLimits
			limits.LineBytes = 1 << 16
			s := newSetup(t, c.command, limits)
			for range 5 {
				expect(t, "proposals", s.ask(), []string(nil))
			}
			faults := slices.DeleteFunc(slices.Clone(s.notes), func(note string) bool { return strings.HasPrefix(note, "proposal ") })
			if len(faults) != 3 || !strings.Contains(faults[0], c.want) || !strings.HasSuffix(faults[0], "(fault 1 of 3 in a row)") ||
				!strings.Contains(faults[2], "after 3 faults in a row it is not asked again") || !s.Ended() {
				t.Errorf("%q\nwant %s", faults, c.want)
			}
			if got := strings.Count(s.events(), `"message_type":"fault"`); got != 3 {
				t.Errorf("%d faults in the record", got)
			}
		})
	}
}

// A fault between good answers is forgiven.
func TestFaultsInARow(t *testing.T) {
	t.Parallel()
	const bad, good = `{"type":"proposals","variants":[{"variant":"j"}]}`, `{"type":"proposals","variants":[{}]}`
	s := newSetup(t, program(t, "say", bad, bad, good, bad, bad, good), Limits{})
	for range 6 {
		s.ask()
	}
	if s.Ended() || s.faults != 0 {
		t.Errorf("ended %v, %d faults", s.Ended(), s.faults)
	}
}

// A program that hangs is killed with what it has started, and so is one that hangs at the end.
func TestHangingProgram(t *testing.T) {
	t.Parallel()
	limits := DefaultLimits
	limits.Seconds = 2
	file := filepath.Join(t.TempDir(), "pid")
	s := newSetup(t, program(t, "hang", file), limits)
	s.ask()
	if len(s.notes) != 1 || !strings.Contains(s.notes[0], "the proposer did not respond within 2s and was killed") {
		t.Errorf("%q", s.notes)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
}

// A program that takes more memory than it may is killed. The user learns the variable.
func TestMemoryOfAProgram(t *testing.T) {
	t.Setenv(MemoryVariable, "100M")
	s := newSetup(t, program(t, "grow"), Limits{})
	s.ask()
	const want = "the proposer needs more than 100 MB of memory; ATTUNE_PROPOSER_MEMORY=8G allows more (fault 1 of 3 in a row)"
	if len(s.notes) != 1 || s.notes[0] != want {
		t.Errorf("%q", s.notes)
	}
	t.Setenv(MemoryVariable, "1")
	s = newSetup(t, program(t, "grow"), Limits{})
	s.ask()
	if len(s.notes) != 1 || !strings.Contains(s.notes[0], "the proposer does not start: ATTUNE_PROPOSER_MEMORY=1: want a size") {
		t.Errorf("%q", s.notes)
	}
}

func TestCancelledSearch(t *testing.T) {
	t.Parallel()
	s := newSetup(t, program(t, "hang", filepath.Join(t.TempDir(), "pid")), Limits{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Ask(ctx, State{}); !errors.Is(err, context.DeadlineExceeded) || s.notes != nil {
		t.Errorf("%v, %q", err, s.notes)
	}
}

func TestLogIsLimited(t *testing.T) {
	t.Parallel()
	s := newSetup(t, program(t, "flood"), Limits{})
	s.ask()
	s.Close()
	info, err := os.Stat(filepath.Join(s.folder, LogFile))
	if err != nil || info.Size() > maxLog || info.Size() < maxLog/2 {
		t.Errorf("%v, %v", info, err)
	}
}

// A state has lists where there is nothing, and the results that the program does not know.
func TestMessages(t *testing.T) {
	t.Parallel()
	s := newSetup(t, program(t, "echo"), Limits{})
	if err := s.Report(Result{Proposal: 1, Stage: "build", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	expect(t, "the state", string(encode(s.message(State{}))),
		`{"type":"state","round":0,"evaluations":0,"elites":[],"insights":[],"last":[{"proposal":1,"stage":"build","reason":"no"}]}`+"\n")
	full := State{
		Evaluations: 3, Default: &Score{Variant: "k", Knobs: map[string]int{"UNROLL": 1}, P50US: 2}, Best: &Score{Variant: "k", Patch: 1, Cost: 1.5, Origin: "evo"},
		Elites: []Score{{Variant: "k"}}, Insights: []profile.Insight{{Rule: "r", Text: "t", Knobs: []string{"A"}}},
	}
	s.last = nil
	expect(t, "the state", string(encode(s.message(full))),
		`{"type":"state","round":0,"evaluations":3,"default":{"variant":"k","knobs":{"UNROLL":1},"p50_us":2},"best":{"variant":"k","knobs":null,"patch":1,"cost":1.5,"origin":"evo"},`+
			`"elites":[{"variant":"k","knobs":null}],"insights":[{"rule":"r","text":"t","knobs":["A"]}],"last":[]}`+"\n")
	expect(t, "hello", string(encode(s.subject.hello(s.options.Limits))),
		`{"type":"hello","protocol":1,"kernel":"k","variant":"k","objective":"cost","shapes":["n=64"],`+
			`"limits":{"seconds":60,"line_bytes":4194304,"variants":16,"patches":4,"patch_bytes":65536},`+
			`"space":{"knobs":[{"name":"THREADS","layer":"micro","values":[32,64,128],"default":64,"about":"threads of a block"},`+
			`{"name":"UNROLL","layer":"macro","values":[1,2,4],"default":1}],"constraints":[{"rule":"THREADS * UNROLL \u003c= 256","why":"the block has 256 elements"}]},`+
			`"sources":[{"path":"h.cuh","text":"// h\n"},{"path":"k.cu","text":"#include \"h.cuh\"\nextern \"C\" __global__ void k() {\n}\n"}]}`+"\n")
	s.ask()
	if !strings.Contains(s.notes[0], `the proposer answered the type "{\"type\":\"state\",\"round\":1,`) {
		t.Errorf("%q", s.notes)
	}
}

// A search that is continued knows its patches and goes on counting.
func TestContinuedSearch(t *testing.T) {
	t.Parallel()
	s := newSetup(t, program(t, "say", `{"type":"proposals","patches":[{"diff":"--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"}]}`), Limits{})
	s.ask()
	s.Close()
	record := filepath.Join(s.folder, RecordFile)
	if err := os.WriteFile(record, []byte(s.events()+`{"message_ty`), 0o644); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.folder, "patch-2.diff.part"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	again := New(Options{Command: program(t, "say", `{"type":"proposals","variants":[{"patch":1}]}`)}, newSubject(t))
	if err := again.Open(s.folder); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	got, err := again.Ask(t.Context(), State{})
	if err != nil || len(got) != 1 || got[0].Proposal != 2 || got[0].Patch != 1 || string(got[0].Files["h.cuh"]) != "x\n" {
		t.Errorf("%+v, %v", got, err)
	}
	if events := s.events(); strings.Count(events, "\n") != 2 || !strings.Contains(events, `"round":2,"proposal":2`) {
		t.Errorf("%s", events)
	}
}

func TestDamagedFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text, want string
	}{
		"record":            {RecordFile, "{\"a\n", "proposals.jsonl is damaged: "},
		"patch":             {"patch-1.diff", "x", "patch-1.diff does not fit any more: the diff changes no file"},
		"patch is a folder": {"patch-1.diff/x", "x", "is a directory"},
		"record is folder":  {RecordFile + "/x", "x", "is a directory"},
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(c.text), 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := New(Options{}, newSubject(t)).Open(folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := New(Options{}, newSubject(t)).Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that does not exist is accepted")
	}
}

// A record or a patch that cannot be written ends the search with the reason: what it has found
// would be lost too.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	answers := []string{`{"type":"proposals","variants":[{}]}`, `{"type":"proposals","variants":[{"variant":"j"}]}`, "garbage", `{"type":"done"}`}
	for _, answer := range answers {
		s := newSetup(t, program(t, "say", answer), Limits{})
		s.record.file.Close()
		if _, err := s.Ask(t.Context(), State{}); err == nil || !strings.Contains(err.Error(), "file already closed") {
			t.Errorf("%s: %v", answer, err)
		}
	}
	const patch = `{"type":"proposals","patches":[{"diff":"--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"}]}`
	for _, block := range []string{"patch-1.diff.part/x", "patch-1.diff/x"} {
		s := newSetup(t, program(t, "say", patch), Limits{})
		file := filepath.Join(s.folder, block)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if got := s.ask(); got != nil || len(s.notes) == 0 || !strings.Contains(s.notes[0], "patch-1.diff") {
			t.Errorf("%s: %v, %q", block, got, s.notes)
		}
	}
	s := newSetup(t, program(t, "die"), Limits{})
	if err := os.Mkdir(filepath.Join(s.folder, LogFile), 0o755); err != nil {
		t.Fatal(err)
	}
	s.ask()
	expect(t, "a log that cannot be written", len(s.notes), 1)
}

// Without a folder nothing is written.
func TestSearchWithoutFolder(t *testing.T) {
	t.Parallel()
	p := New(Options{Command: program(t, "say", `{"type":"proposals","patches":[{"diff":"--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"}]}`)}, newSubject(t))
	got, err := p.Ask(t.Context(), State{})
	if err != nil || len(got) != 1 || got[0].Patch != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`sh p.py`:                   `["p.py"]`,
		"  sh\t-c  'a \"b\" \\c'\n": `["-c" "a \"b\" \\c"]`,
		`sh "a b"c\ d "x\"y\z"`:     `["a bc d" "x\"y\\z"]`,
		`sh '' ""`:                  `["" ""]`,
		`sh $HOME;ls *`:             `["$HOME;ls" "*"]`,
	} {
		if words, err := Command(text); err != nil || fmt.Sprintf("%q", words[1:]) != want {
			t.Errorf("%s: %q, %v; want %s", text, words, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "it names no program", `sh "x`: `the quote " is not closed`, `sh x\`: "it ends with a backslash", "/no/program": `there is no program "/no/program"`,
	} {
		if _, err := Command(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(`{"type":"proposals","variants":[{"knobs":{"THREADS":128}},{"variant":"k"},7],"patches":[{"diff":"x"}]}`)
	f.Add(`{"type":"done"}`)
	f.Add(`[{"type":7}]`)
	kernel, err := spec.Load(kernelFolder())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		a, err := decodeAnswer([]byte(line))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		folder := kernelFolder()
		s := Subject{Kernel: kernel, Default: kernel.Stages[0].Variant(), Folder: folder, Sources: map[string][]byte{"k.cu": []byte(sourceText)}}
		p := New(Options{Note: func(note string) {
			if strings.ContainsAny(note, "\n\x1b") {
				t.Errorf("%q", note)
			}
		}}, s)
		accepted, _, err := p.candidates(a)
		if err != nil {
			t.Error(err)
		}
		for _, c := range accepted {
			if c.Variant.Stage() == nil || c.Files == nil != (c.Patch == 0) || c.Files["kernel.toml"] != nil {
				t.Errorf("%+v", c)
			}
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add(`sh "a b"c\ d`)
	f.Fuzz(func(t *testing.T, text string) {
		words, err := split(text)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		if back, err := split(strings.Join(quoted, " ")); err != nil || !slices.Equal(back, words) {
			t.Errorf("%q: %q, %v", words, back, err)
		}
	})
}
