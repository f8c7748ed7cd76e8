package ci

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
	"pgregory.net/rapid"
)

// nasty are names and texts that mean something in one of the formats.
var nasty = []string{
	"a\nb", "::error::x", "x::y,z=1%0A", "\x00\x1b[31m\x7f", "a|b", "<b>&\"'", "]]>", "`code`", "\xff\xfe", "a\r\n::warning::b", "\u2028", "*_#[x](y)~@user", " ", "a/b c-8",
}

// Annotations have one line each, whatever the texts, and their values can be read back.
func TestAnnotate(t *testing.T) {
	issues := []Issue{{
		Level: Error, Rule: "race", Subject: "stage2", Message: "two\nlines: 100 %", Location: Location{File: "a,b:c.cu", Line: 12},
	}}
	var out bytes.Buffer
	if err := Annotate(&out, issues); err != nil {
		t.Fatal(err)
	}
	want := "::error file=a%2Cb%3Ac.cu,line=12,title=attune%3A race in stage2::two%0Alines: 100 %25\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	for _, text := range nasty {
		line := command(Issue{Level: Warning, Rule: text, Subject: text, Message: text, Location: Location{File: text, Line: 1}})
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") || strings.Contains(line, "\r") {
			t.Errorf("%q is not one line", line)
		}
		properties, message, ok := strings.Cut(strings.TrimPrefix(line, "::warning "), "::")
		if parts := strings.Split(properties, ","); !ok || len(parts) != 3 {
			t.Errorf("%q has the properties %q", line, parts)
		}
		if got := unescaped.Replace(strings.TrimSuffix(message, "\n")); got != printable(text) {
			t.Errorf("the message %q is read as %q", text, got)
		}
	}
}

var unescaped = strings.NewReplacer("%25", "%", "%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",")

// GitHub shows ten annotations of a level: the tenth counts the others.
func TestAnnotateMany(t *testing.T) {
	var issues []Issue
	for n := range 25 {
		issues = append(issues, Issue{Level: Error, Rule: "race", Subject: "k", Message: fmt.Sprint(n), Location: Location{"k.cu", n + 1, ""}})
	}
	issues = append(issues, Issue{Level: Warning, Rule: "other", Message: "w"})
	var out bytes.Buffer
	if err := Annotate(&out, issues); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "::error "); n != mostAnnotations || !strings.Contains(out.String(), "title=attune::16 more are in the log\n") {
		t.Errorf("%d errors:\n%s", n, out.String())
	}
	if strings.Count(out.String(), "::warning ") != 1 {
		t.Errorf("the warning is missing:\n%s", out.String())
	}
}

func TestMerge(t *testing.T) {
	at := Location{"k.cu", 3, ""}
	got := Merge([]Issue{
		{Rule: "race", Subject: "a", Location: at, Message: "first"},
		{Rule: "race", Subject: "b", Location: at, Message: "second"},
		{Rule: "race", Subject: "b", Location: at},
		{Rule: "deadlock", Subject: "a", Location: at},
		{Rule: "gate", Subject: "a", Message: "slow"},
		{Rule: "gate", Subject: "a", Message: "large"},
	})
	if len(got) != 4 || got[0].Subject != "a, b" || got[0].Message != "first" || got[1].Rule != "deadlock" || got[3].Message != "large" {
		t.Errorf("%+v", got)
	}
	if text := listed([]string{"a", "b", "c", "d", "e"}); text != "a, b, c and 2 more" {
		t.Error(text)
	}
}

func TestStep(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "")
	var none *Step = NewStep()
	none.Add(Issue{})
	none.Summarize("text")
	if err := none.Report(nil); err != nil || none != nil {
		t.Errorf("outside of GitHub: %v, %v", none, err)
	}
	file := filepath.Join(t.TempDir(), "summary.md")
	t.Setenv("GITHUB_ACTIONS", "true")
	t.Setenv("GITHUB_STEP_SUMMARY", file)
	for n := range 2 {
		step := NewStep()
		step.Add(Issue{Level: Error, Rule: "r", Message: "m"})
		step.Summarize(fmt.Sprintf("part %d\n", n))
		var out bytes.Buffer
		if err := step.Report(&out); err != nil || out.String() != "::error title=attune%3A r::m\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "part 0\n\npart 1\n\n" {
		t.Errorf("%q, %v", text, err)
	}
	t.Setenv("GITHUB_STEP_SUMMARY", filepath.Join(t.TempDir(), "no", "folder"))
	step := NewStep()
	step.Summarize("text")
	if err := step.Report(io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a summary that cannot be written: %v", err)
	}
}

// The summary of a step stays below GitHub's limit, also if several commands append to it.
func TestSummaryLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "summary.md")
	long := "```\n" + strings.Repeat("0123456789abcde\n", 30_000) + "```\n"
	for range 4 {
		if err := appendSummary(file, long); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > mostSummary || len(text) < mostSummary-200 {
		t.Errorf("the summary has %d bytes, want up to %d", len(text), mostSummary)
	}
	if strings.Count(string(text), "```")%2 != 0 || !strings.HasSuffix(string(text), "```\n"+cutNote) {
		t.Errorf("a block of code is open: %q", text[len(text)-200:])
	}
}

func TestMarkdown(t *testing.T) {
	for _, text := range nasty {
		for _, got := range []string{Markdown(text), Code(text)} {
			plain := strings.ReplaceAll(got, `\|`, "")
			if strings.ContainsAny(plain, "\n\r|<") && !strings.HasPrefix(got, "`") {
				t.Errorf("%q is written as %q", text, got)
			}
		}
	}
	if got := Code("stage2+TILE_N=32"); got != "`stage2+TILE_N=32`" {
		t.Error(got)
	}
	want := "| a | b |\n|---|---|\n| 1 | 2 |\n"
	if got := Table([]string{"a", "b"}, [][]string{{"1", "2"}}); got != want {
		t.Errorf("%q", got)
	}
}

func TestJUnit(t *testing.T) {
	suite := Suite{Name: nasty[3], Elapsed: 1500 * time.Millisecond}
	for n, text := range nasty {
		suite.Cases = append(suite.Cases, Case{Class: text, Name: text, Outcome: Outcome(n % 4), Message: text, Text: text, Elapsed: time.Second})
	}
	var out bytes.Buffer
	if err := JUnit(&out, suite); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tests    int     `xml:"tests,attr"`
		Failures int     `xml:"failures,attr"`
		Errors   int     `xml:"errors,attr"`
		Skipped  int     `xml:"skipped,attr"`
		Time     float64 `xml:"time,attr"`
		Cases    []struct {
			Name string  `xml:"name,attr"`
			Time float64 `xml:"time,attr"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if n := len(nasty); got.Tests != n || len(got.Cases) != n || got.Failures != 4 || got.Errors != 3 || got.Skipped != 3 || got.Time != 1.5 || got.Cases[0].Time != 1 {
		t.Errorf("%+v", got)
	}
	if got.Cases[5].Name != nasty[5] {
		t.Errorf("%q is read as %q", nasty[5], got.Cases[5].Name)
	}
	if seconds(0) != "" {
		t.Error("a time that was not measured is written")
	}
}

// Benchmarks can be read by benchstat's own reader, and each name has its parts.
func TestBenchmarks(t *testing.T) {
	var all []Series
	for _, text := range append(nasty, "stage7-8", "") {
		all = append(all, Series{text, text, text, []float64{1.5e-6, 2e-6}})
	}
	var out bytes.Buffer
	if err := Benchmarks(&out, []Config{{"device", "NVIDIA\nH200"}, {"arch", ""}}, all); err != nil {
		t.Fatal(err)
	}
	reader := benchfmt.NewReader(&out, "test")
	n := 0
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("%v", reader.Result())
		}
		n++
		_, parts := result.Name.Parts()
		if len(parts) != 2 || !bytes.HasPrefix(parts[0], []byte("/shape=")) || !bytes.HasPrefix(parts[1], []byte("/variant=")) {
			t.Errorf("%q has the parts %q", result.Name, parts)
		}
		if seconds, ok := result.Value("sec/op"); !ok || math.Abs(seconds-1.75e-6) > 0.26e-6 {
			t.Errorf("%q has the values %v", result.Name, result.Values)
		}
		if device := result.GetConfig("device"); device != "NVIDIA H200" {
			t.Errorf("the device is %q", device)
		}
	}
	if err := reader.Err(); err != nil || n != 2*len(all) {
		t.Errorf("%d results of %d, %v", n, 2*len(all), err)
	}
}

// tree makes a checkout with one source file.
func tree(t *testing.T, source string) Tree {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "k"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "k", "k.cu"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	return Tree{resolved(root)}
}

func TestTree(t *testing.T) {
	at := tree(t, "one\n")
	for path, want := range map[string]string{
		filepath.Join(at.Root, "k", "k.cu"):    "k/k.cu",
		filepath.Join(at.Root, "k", "none.cu"): "",
		filepath.Join(at.Root, "k"):            "",
		"/etc/passwd":                          "",
		"":                                     "",
	} {
		if got := at.Path(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	t.Setenv("GITHUB_WORKSPACE", at.Root)
	if got := FindTree(); got != at {
		t.Errorf("the tree of a workflow is %v", got)
	}
	t.Setenv("GITHUB_WORKSPACE", "")
	if err := os.Mkdir(filepath.Join(at.Root, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(at.Root, "k"))
	if got := FindTree(); got != at {
		t.Errorf("the tree of a checkout is %v, want %v", got, at)
	}
}

// A fingerprint stays the same if lines are added above, and differs for other code.
func TestFingerprints(t *testing.T) {
	issue := func(line int, key string) Issue {
		return Issue{Rule: "race", Key: key, Location: Location{"k/k.cu", line, ""}, Related: []Location{{"k/k.cu", 1, ""}}}
	}
	before := tree(t, "read();\n  write(x);\n  write(y);\n  write(x);\n").fingerprints([]Issue{issue(2, ""), issue(3, ""), issue(4, "")})
	after := tree(t, "read();\n// a comment\n\twrite(x);\n\n\twrite(y);\n\twrite(x);\n").fingerprints([]Issue{issue(3, ""), issue(5, ""), issue(6, "")})
	for n := range before {
		if before[n] != after[n] {
			t.Errorf("%d: %s becomes %s", n, before[n], after[n])
		}
	}
	if before[0] == before[1] || before[0] == before[2] || !strings.HasSuffix(before[2], ":2") {
		t.Errorf("different findings have the fingerprints %q", before)
	}
	gone := Tree{t.TempDir()}
	one, two := gone.fingerprints([]Issue{issue(2, "st.shared")}), gone.fingerprints([]Issue{issue(9, "st.shared")})
	if one[0] != two[0] {
		t.Error("without the source the instruction does not identify a finding")
	}
}

// The document has the properties that the schema of SARIF 2.1.0 requires, with the right types.
func TestSARIF(t *testing.T) {
	rules := []Rule{{"race", "short", "help"}, {"deadlock", "short", "help"}}
	issues := []Issue{
		{Level: Error, Rule: "race", Subject: "stage2", Message: "text", Location: Location{"k/k.cu", 2, ""}, Related: []Location{{"k/k.cu", 1, "the other"}}},
		{Level: Notice, Rule: "undefined", Subject: "stage2", Message: "text"},
	}
	for _, text := range nasty {
		issues = append(issues, Issue{Level: Error, Rule: text, Subject: text, Message: text, Location: Location{text, 1, ""}})
	}
	var out bytes.Buffer
	if err := SARIF(&out, "0.1.0", tree(t, "a\nb\n"), rules, issues); err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if document["version"] != "2.1.0" {
		t.Errorf("the version is %v", document["version"])
	}
	run := at[map[string]any](t, document, "runs", 0)
	if name := at[string](t, run, "tool", "driver", "name"); name != "attune" {
		t.Error(name)
	}
	known := at[[]any](t, run, "tool", "driver", "rules")
	for n := range known {
		for _, key := range []string{"shortDescription", "fullDescription", "help"} {
			at[string](t, known, n, key, "text")
		}
		at[string](t, known, n, "id")
	}
	results := at[[]any](t, run, "results")
	if len(results) != len(issues) {
		t.Fatalf("%d results of %d", len(results), len(issues))
	}
	for n := range results {
		checkResult(t, results[n], known)
	}
	if uri := at[string](t, results, 0, "relatedLocations", 0, "physicalLocation", "artifactLocation", "uri"); uri != "k/k.cu" {
		t.Error(uri)
	}
	if level := at[string](t, results, 1, "level"); level != "note" {
		t.Error(level)
	}
}

// A file outside of the checkout has an absolute address, which annotations leave out. A file without
// a line has line 1. Callers are related places, and no part of the fingerprint.
func TestSARIFLocations(t *testing.T) {
	checkout := tree(t, "a\nb\nc\n")
	outside := filepath.ToSlash(filepath.Join(resolved(t.TempDir()), "a b.cuh"))
	if err := os.WriteFile(outside, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := checkout.Locate(outside); got != outside || checkout.Path(outside) != "" {
		t.Errorf("the file outside is %q", got)
	}
	inlined := Issue{Level: Error, Rule: "race", Message: "text", Location: Location{"k/k.cu", 2, ""}, Callers: []Location{{"k/k.cu", 3, "the call"}, {outside, 1, "the call"}}}
	issues := []Issue{
		{Level: Error, Rule: "race", Message: "text", Location: Location{outside, 1, ""}},
		{Level: Error, Rule: "unwritten", Message: "text", Location: Location{File: "k/k.cu"}},
		inlined,
	}
	var out bytes.Buffer
	if err := SARIF(&out, "", checkout, nil, issues); err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	results := at[[]any](t, document, "runs", 0, "results")
	address := at[map[string]any](t, results, 0, "locations", 0, "physicalLocation", "artifactLocation")
	if want := map[string]any{"uri": "file://" + strings.ReplaceAll(outside, " ", "%20")}; !maps.Equal(address, want) {
		t.Errorf("the file outside has the address %v, want %v", address, want)
	}
	if line := at[float64](t, results, 1, "locations", 0, "physicalLocation", "region", "startLine"); line != 1 {
		t.Errorf("a file without a line has line %v", line)
	}
	if related := at[[]any](t, results, 2, "relatedLocations"); len(related) != 2 || at[string](t, related, 0, "message", "text") != "the call" {
		t.Errorf("the callers are %v", related)
	}
	if line := command(issues[0]); strings.Contains(line, "file=") {
		t.Errorf("an annotation outside of the checkout: %s", line)
	}
	moved := inlined
	moved.Callers = nil
	if checkout.fingerprints([]Issue{inlined})[0] != checkout.fingerprints([]Issue{moved})[0] || len(Merge([]Issue{inlined, moved})) != 2 {
		t.Error("another caller is another alert, or the same issue")
	}
}

// checkResult checks one result against its rule.
func checkResult(t *testing.T, result any, rules []any) {
	t.Helper()
	rule := at[float64](t, result, "ruleIndex")
	if id := at[string](t, result, "ruleId"); at[string](t, rules, int(rule), "id") != id {
		t.Errorf("rule %v is not %q", rule, id)
	}
	if at[string](t, result, "message", "text") == "" {
		t.Error("a result has no text")
	}
	if print := at[string](t, result, "partialFingerprints", fingerprintName); len(print) < 34 {
		t.Errorf("the fingerprint is %q", print)
	}
	locations, ok := result.(map[string]any)["locations"]
	if !ok {
		return
	}
	uri := at[string](t, locations, 0, "physicalLocation", "artifactLocation", "uri")
	if strings.HasPrefix(uri, "/") || strings.ContainsAny(uri, " \n<|") {
		t.Errorf("the address %q is not relative or not escaped", uri)
	}
	if line := at[float64](t, locations, 0, "physicalLocation", "region", "startLine"); line < 1 {
		t.Errorf("line %v", line)
	}
}

// at returns the value at a path of keys and indices.
func at[T any](t *testing.T, value any, path ...any) T {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
	}
	found, ok := value.(T)
	if !ok {
		t.Fatalf("%v is %T", path, value)
	}
	return found
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }

// Every writer reports that its output is lost.
func TestLostOutput(t *testing.T) {
	issue := Issue{Level: Error, Rule: "race"}
	for name, write := range map[string]func() error{
		"annotations": func() error { return Annotate(brokenWriter{}, []Issue{issue}) },
		"sarif":       func() error { return SARIF(brokenWriter{}, "", Tree{}, nil, []Issue{issue}) },
		"junit":       func() error { return JUnit(brokenWriter{}, Suite{}) },
		"benchmarks":  func() error { return Benchmarks(brokenWriter{}, nil, nil) },
	} {
		if write() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Any text is one line in every format of lines, and the reader gets what was written.
func TestAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		line := command(Issue{Level: Error, Rule: text, Subject: text, Message: text, Location: Location{File: text, Line: 1}})
		_, message, _ := strings.Cut(strings.TrimPrefix(line, "::error "), "::")
		if strings.Count(line, "\n") != 1 || unescaped.Replace(strings.TrimSuffix(message, "\n")) != shortened(printable(text), mostMessage) {
			t.Errorf("the annotation is %q", line)
		}
		for _, cell := range []string{Markdown(text), Code(text)} {
			if row := Table([]string{"a"}, [][]string{{cell}}); strings.Count(row, "\n") != 3 {
				t.Errorf("the table is %q", row)
			}
		}
		var out bytes.Buffer
		if err := Benchmarks(&out, []Config{{"device", text}}, []Series{{text, text, text, []float64{1e-6}}}); err != nil {
			t.Error(err)
		}
		reader := benchfmt.NewReader(&out, "test")
		if !reader.Scan() {
			t.Fatalf("no benchmark in %q", out.String())
		}
		if _, ok := reader.Result().(*benchfmt.Result); !ok {
			t.Errorf("%v", reader.Result())
		}
		out.Reset()
		if err := JUnit(&out, Suite{Name: text, Cases: []Case{{Class: text, Name: text, Outcome: Failed, Message: text, Text: text}}}); err != nil {
			t.Error(err)
		}
		if err := xml.Unmarshal(out.Bytes(), &struct{ XMLName xml.Name }{}); err != nil {
			t.Errorf("%v in %q", err, out.String())
		}
	})
}
