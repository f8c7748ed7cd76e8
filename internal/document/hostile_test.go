package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"attune/internal/plot/plottest"
	"attune/internal/run"
)

// hostile are texts that a crafted record may have.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a | b | c", "`code` ``` ~~~", "[link](javascript:alert(1))", "![i](http://evil.example/x.png)",
	"line\nline\r\n# heading\n| a | b |\n|---|---|", "\x00\x1b[31m\u202e\u2066", "https://evil.example www.evil.example @someone",
	"</style></svg></details>", "../../../../etc/passwd",
	"{{.}} {{template \"x\"}}", "&lt;&#60;", `\`, "*_~#>-+", strings.Repeat("long name ", 60), "", " ", "--> <!--", "\xff\xfe",
}

// crafted is the text of a record in which some texts are hostile, some numbers huge or negative, and
// some keys missing.
func crafted(text []byte, random *rand.Rand) []byte {
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		panic(err)
	}
	var change func(v any) any
	change = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) { // in the same order each time
				inner := v[key]
				if random.IntN(60) == 0 && key != "schema_version" {
					delete(v, key)
				} else if key != "schema_version" && key != "time" {
					v[key] = change(inner)
				}
			}
		case []any:
			for i, inner := range v {
				v[i] = change(inner)
			}
		case string:
			if random.IntN(3) == 0 {
				return hostile[random.IntN(len(hostile))]
			}
		case float64:
			if v != float64(int(v)) && random.IntN(4) == 0 { // a whole number may be an int, and is refused
				return []float64{1e300, -1e300, 0, 1e-300, -1, 5e-324}[random.IntN(6)]
			}
		}
		return v
	}
	out, err := json.Marshal(change(document))
	if err != nil {
		panic(err)
	}
	return out
}

// The only markup of a report in Markdown.
var markup = regexp.MustCompile(`^(<!-- attune report -->|<details><summary>.*</summary>|</details>)$`)

// harmless fails if a report has anything that its records brought in.
func harmless(t *testing.T, files map[string][]byte) {
	t.Helper()
	page := string(files[HTMLFile])
	for _, bad := range []string{"<script", "<img", "href=\"javascript", "\x00", "\x1b", "\u202e"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: %q", bad, page[max(0, i-200):min(len(page), i+100)])
		}
	}
	if _, err := readPage(files[HTMLFile]); err != nil {
		t.Errorf("the page cannot be read: %v", err)
	}
	if n := strings.Count(page, "<a "); n != strings.Count(page, `<a href="#`) {
		t.Error("a link leaves the page")
	}
	columns, fence := 0, ""
	for line := range strings.Lines(string(files[MarkdownFile])) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case fence != "":
			if line == fence {
				fence = ""
			}
			continue
		case strings.HasPrefix(line, "```"):
			fence = line
			continue
		case markup.MatchString(line):
			continue
		case strings.HasPrefix(line, "|--"):
			columns = strings.Count(line, "|")
		case strings.HasPrefix(line, "| ") && columns > 0:
			if n := len(regexp.MustCompile(`(^|[^\\])\|`).FindAllString(line, -1)); n != columns {
				t.Errorf("a row has %d bars, the table %d: %.300q", n, columns, line)
			}
		default:
			columns = 0
		}
		checkLine(t, line)
	}
	for name, data := range files {
		if name != filepath.Base(name) || !regexp.MustCompile(`^report(-[a-z0-9-]+)?\.(md|html|svg)$`).MatchString(name) {
			t.Errorf("a file is named %q", name)
		}
		if faults := plottest.Faults(data); strings.HasSuffix(name, ".svg") && len(faults) > 0 {
			t.Errorf("%s: %s", name, faults[0])
		}
	}
}

// checkLine looks for markup outside code spans.
func checkLine(t *testing.T, line string) {
	t.Helper()
	text := regexp.MustCompile("`[^`]*`").ReplaceAllString(strings.ReplaceAll(line, "\\`", ""), "")
	text = regexp.MustCompile(`</?code>`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`^!\[.*\]\(report-[a-z0-9-]+\.svg\)$`).ReplaceAllString(text, "")
	if bad := regexp.MustCompile(`(^|[^\\])(\]\(|://)|<|www\.`).FindString(text); bad != "" {
		t.Errorf("Markdown has %q in %.300q", bad, line)
	}
}

// A crafted record renders harmlessly, or is refused with its reason.
func TestCraftedRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of changed records")
	}
	t.Parallel()
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join(results, path))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	runText := read("runs/20261117-074843-stage7-de5e53/run.json")
	benchText := read("benches/20261116-222517-bench-d46349/bench.json")
	tuningText := read("tunings/20261117-075034-rmsnorm-64bd56/tuning.json")
	rendered, refused := 0, 0
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		var d *Document
		r, errRun := run.Decode(crafted(runText, random))
		b, errBench := run.DecodeBench(crafted(benchText, random))
		tuned, errTuning := run.DecodeTuning(crafted(tuningText, random))
		for i, err := range []error{errRun, errBench, errTuning} {
			if err != nil {
				refused++
				continue
			}
			switch i {
			case 0:
				s := &RunStudy{Run: r, Ancestors: []*run.Run{r}, Siblings: []*run.Run{r}, LeftOut: hostile}
				if errBench == nil {
					s.Bench, s.Sweep = b, b
				}
				d = Runs([]*RunStudy{s, s})
			case 1:
				d = (&BenchStudy{Bench: b, LeftOut: hostile}).Document()
			case 2:
				d = (&TuningStudy{Tuning: tuned}).Document()
			}
			files, err := d.Files()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			harmless(t, files)
			rendered++
			if t.Failed() {
				t.Fatalf("seed %d, record %d", seed, i)
			}
		}
	}
	if rendered < 10 {
		t.Errorf("%d rendered, %d refused: the test needs more that are rendered", rendered, refused)
	}
}

// Hostile texts in every place of a text are escaped.
func TestEscapes(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		span := Span{Text: text, Source: `x" onload="`, Format: "%s"}
		d := &Document{Title: Text{span}, Headline: []Text{{span}}, Sections: []Section{{ID: "s", Title: Text{span}, Blocks: []Block{
			Text{span},
			List{{span}},
			Code{Text: span},
			Table{Columns: []Column{{Name: Text{span}}, {Name: Text{span}}}, Rows: [][]Text{{{span}, {Span{Text: text, Code: true}}}}},
			Details{Summary: Text{span}, Blocks: []Block{Text{Span{Text: text, Code: true}}}},
		}}}}
		files, err := d.Files()
		if err != nil {
			t.Fatal(err)
		}
		harmless(t, files)
		if t.Failed() {
			t.Fatalf("text %q:\n%s", text, files[MarkdownFile])
		}
	}
}

// Files that are missing beside a run are named in the report; a run without its record is refused.
func TestMissingFiles(t *testing.T) {
	t.Parallel()
	const id = "20261116-160726-stage6-186dea"
	r, dir := copyResults(t)
	folder := filepath.Join(dir, "runs", id)
	if err := os.Remove(filepath.Join(folder, "samples.json.gz")); err != nil {
		t.Fatal(err)
	}
	study, err := r.Run(t.Context(), id)
	if err != nil || len(study.LeftOut) != 1 || !strings.HasPrefix(study.LeftOut[0], "the samples: ") {
		t.Fatalf("%v, left out: %q", err, study.LeftOut)
	}
	if text := string(study.Document().Markdown()); !strings.Contains(text, "could not be read") || !strings.Contains(text, "samples.json") {
		t.Error("the report does not say what is missing")
	}
	if err := os.Remove(filepath.Join(folder, "run.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), id); err == nil || !strings.Contains(err.Error(), "run.json") {
		t.Errorf("got %v", err)
	}
	for _, id := range []string{"../../../etc", "..", "", "/etc/passwd", "no-such-run"} {
		if _, err := r.Run(t.Context(), id); err == nil {
			t.Errorf("a run %q was read", id)
		}
		if _, err := r.Tuning(t.Context(), id); err == nil {
			t.Errorf("a tuning %q was read", id)
		}
	}
}

// Write replaces its own files and no others.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder [x]")
	d := &Document{Title: say("t")}
	files := filesOf(t, d)
	files["report-old.svg"] = []byte(`<svg xmlns="http://www.w3.org/2000/svg" class="attune-plot">`)
	if err := Write(dir, files); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report-mine.svg"), []byte("<svg>mine</svg>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, filesOf(t, d)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"report.md": true, "report.html": true, "notes.txt": true, "report-mine.svg": true, "report-old.svg": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s exists: %t; want %t", name, err == nil, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte("# My own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := Write(dir, filesOf(t, d))
	if err == nil || !strings.Contains(err.Error(), "files that no report wrote: report.md") {
		t.Errorf("got %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "report.md")); string(text) != "# My own\n" {
		t.Errorf("the file was changed: %s", text)
	}
	if err := Write(filepath.Join(dir, "notes.txt"), files); err == nil || !strings.Contains(err.Error(), "is a file") {
		t.Errorf("got %v", err)
	}
	if err := os.Symlink(filepath.Join(dir, "notes.txt"), filepath.Join(dir, "link.html")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "link.html"), []byte("x")); err == nil {
		t.Error("a link was replaced")
	}
	if err := WriteFile(filepath.Join(dir, "none", "x.html"), []byte("x")); err == nil {
		t.Error("a file in no folder was written")
	}
	left, _ := filepath.Glob(filepath.Join(escapeGlob(dir), ".report-*"))
	if fmt.Sprint(left) != "[]" {
		t.Errorf("left behind: %v", left)
	}
}
