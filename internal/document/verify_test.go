package document

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The verification of a report reads the files of the ledger as plain JSON. It shares no code with
// the report: neither the types of records nor the functions that compute figures.

// shelf reads the files of a ledger.
type shelf struct {
	dir   string
	files map[string]any
}

func (s *shelf) read(name string) (any, error) {
	if document, ok := s.files[name]; ok {
		return document, nil
	}
	id, file, _ := strings.Cut(name, "/")
	for _, folder := range []string{"runs", "benches", "tunings"} {
		text, err := os.ReadFile(filepath.Join(s.dir, folder, id, file))
		if err != nil {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var document any
		if err := decoder.Decode(&document); err != nil {
			return nil, err
		}
		if s.files == nil {
			s.files = map[string]any{}
		}
		s.files[name] = document
		return document, nil
	}
	return nil, fmt.Errorf("the ledger has no %s", name)
}

// value is what a source such as ID/run.json#speedup.ratio names.
func (s *shelf) value(source string) (any, error) {
	name, key, found := strings.Cut(source, "#")
	if !found {
		n, err := strconv.ParseFloat(source, 64)
		return n, err
	}
	document, err := s.read(name)
	if err != nil {
		return nil, err
	}
	if list, ok := strings.CutPrefix(key, "count:"); ok {
		return s.count(document, list)
	}
	if key, ok := strings.CutPrefix(key, "is:"); ok {
		key, want, _ := strings.Cut(key, ":")
		got, err := find(document, key)
		if text, _ := json.Marshal(got); err == nil && string(text) == want {
			return 1.0, nil
		}
		return 0.0, err
	}
	return find(document, key)
}

func (s *shelf) count(document any, key string) (any, error) {
	key, text, filtered := strings.Cut(key, ":")
	filter := map[string]any{}
	if filtered {
		if err := json.Unmarshal([]byte(text), &filter); err != nil {
			return nil, err
		}
	}
	list, err := find(document, key)
	if err != nil {
		return nil, err
	}
	n := 0.0
	for _, element := range list.([]any) {
		fits := true
		for k, want := range filter {
			got, has := element.(map[string]any)[k]
			if !has {
				got = ""
			}
			fits = fits && got == want
		}
		if fits {
			n++
		}
	}
	return n, nil
}

func find(document any, key string) (any, error) {
	for _, part := range strings.Split(key, ".") {
		switch d := document.(type) {
		case map[string]any:
			inner, ok := d[part]
			if !ok {
				return nil, fmt.Errorf("there is no key %s (at %s)", key, part)
			}
			document = inner
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(d) {
				return nil, fmt.Errorf("there is no element %s (at %s)", key, part)
			}
			document = d[i]
		default:
			return nil, fmt.Errorf("there is nothing below %s (at %s)", key, part)
		}
	}
	return document, nil
}

// number evaluates a source with its operators from left to right.
func (s *shelf) number(source string) (float64, error) {
	result, operator := 0.0, "+"
	for _, word := range strings.Split(source, " ") {
		if slices.Contains([]string{"+", "*", "/"}, word) {
			operator = word
			continue
		}
		v, err := s.value(word)
		if err != nil {
			return 0, err
		}
		n, ok := v.(float64)
		if j, is := v.(json.Number); is {
			n, err = j.Float64()
			ok = err == nil
		}
		if !ok {
			return 0, fmt.Errorf("%s is no number: %v", word, v)
		}
		switch operator {
		case "+":
			result += n
		case "*":
			result *= n
		case "/":
			result /= n
		}
	}
	return result, nil
}

// check compares a text with what its source says.
func (s *shelf) check(p piece) error {
	if p.format != "" {
		n, err := s.number(p.source)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf(p.format, n); p.text != want || p.value != want {
			return fmt.Errorf("%s is %q (value %q), and the ledger has %q", p.source, p.text, p.value, want)
		}
		return nil
	}
	v, err := s.value(strings.Replace(p.source, "#summary:", "#", 1))
	if err != nil || strings.Contains(p.source, "#summary:") { // a text about it: that it exists
		return err
	}
	want := fmt.Sprint(v)
	line, _, _ := strings.Cut(strings.TrimSpace(want), "\n")
	if got := strings.TrimSpace(p.text); got != strings.TrimSpace(want) && got != strings.TrimSpace(line) {
		return fmt.Errorf("%s is %q, and the ledger has %q", p.source, p.text, want)
	}
	return nil
}

// piece is a text of the page with its source.
type piece struct{ text, source, format, value string }

// pageReader reads a page: the texts of its blocks in their order, the pieces with a source, the texts
// without one, and the plots by id.
type pageReader struct {
	blocks []string
	pieces []piece
	free   []string
	plots  map[string]string

	block   strings.Builder
	open    *piece // whose text is read
	depth   int    // of elements inside it
	program bool   // inside a message of the program or a command
}

// blockElements begin a new block.
var blockElements = []string{"h1", "h2", "p", "li", "th", "td", "pre", "summary"}

func readPage(page []byte) (*pageReader, error) {
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	r := &pageReader{plots: map[string]string{}}
	for {
		from := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			r.flush()
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if slices.Contains([]string{"svg", "head", "nav", "style"}, t.Name.Local) {
				if err := d.Skip(); err != nil {
					return nil, err
				}
				if id, found := strings.CutSuffix(strings.Split(attribute(t, "aria-labelledby"), " ")[0], "-title"); found {
					r.plots[id] = string(page[from:d.InputOffset()])
				}
				continue
			}
			r.start(t)
		case xml.CharData:
			r.text(string(t))
		case xml.EndElement:
			r.end(t.Name.Local)
		}
	}
}

func (r *pageReader) flush() {
	if text := strings.Join(strings.Fields(r.block.String()), " "); text != "" {
		r.blocks = append(r.blocks, text)
	}
	r.block.Reset()
}

func (r *pageReader) start(e xml.StartElement) {
	if slices.Contains(blockElements, e.Name.Local) {
		r.flush()
	}
	r.program = r.program || e.Name.Local == "samp"
	if source := attribute(e, "data-source"); source != "" {
		r.open, r.depth = &piece{source: source, format: attribute(e, "data-format"), value: attribute(e, "value")}, 0
	} else if r.open != nil {
		r.depth++
	}
}

func (r *pageReader) text(text string) {
	r.block.WriteString(text)
	switch {
	case r.open != nil:
		r.open.text += text
	case !r.program && !strings.HasPrefix(text, "attune "): // else a message or a command
		r.free = append(r.free, text)
	}
}

func (r *pageReader) end(name string) {
	r.program = r.program && name != "samp"
	if slices.Contains(blockElements, name) {
		r.flush()
	}
	switch {
	case r.open != nil && r.depth == 0:
		r.pieces, r.open = append(r.pieces, *r.open), nil
	case r.open != nil:
		r.depth--
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// readMarkdown reads the texts of the blocks of a document, and the images.
func readMarkdown(text []byte) (blocks []string, images map[string]string) {
	images = map[string]string{}
	fenced, code := false, ""
	add := func(line string) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			blocks = append(blocks, line)
		}
	}
	image := regexp.MustCompile(`^!\[(.*)\]\((report-[a-z0-9-]+\.svg)\)$`)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; !fenced {
				add(code)
				code = ""
			}
		case fenced:
			code += line + "\n"
		case strings.HasPrefix(line, "<!--"), line == "</details>", strings.HasPrefix(line, "|--"):
		case strings.HasPrefix(line, "<details><summary>"):
			add(html.UnescapeString(strings.TrimSuffix(strings.TrimPrefix(line, "<details><summary>"), "</summary>")))
		case image.MatchString(line):
			found := image.FindStringSubmatch(line)
			images[found[2]] = unescaped(found[1])
		case strings.HasPrefix(line, "|"):
			for _, c := range cells(line) {
				add(unescaped(c))
			}
		default:
			add(unescaped(strings.TrimPrefix(strings.TrimLeft(line, "#"), "- ")))
		}
	}
	return blocks, images
}

// cells splits a row of a table at its bars. An escaped bar is text.
func cells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |")
	return strings.Split(line, " | ")
}

// unescaped is a text without its escapes and marks of code.
func unescaped(text string) string {
	out := &strings.Builder{}
	code := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '`':
			code = !code
		case text[i] == '\\' && !code && i+1 < len(text):
			i++
			out.WriteByte(text[i])
		default:
			out.WriteByte(text[i])
		}
	}
	plain := strings.NewReplacer("<code>", "", "</code>", "").Replace(out.String())
	return html.UnescapeString(plain)
}

// allowed are the words with digits that the report itself writes.
var allowed = strings.NewReplacer("float64", "", "p50", "", "p90", "", "p99", "", "95 % interval", "", "SHA-256", "", "FP8 GEMM", "", "BF16 GEMM", "", "of FP8", "", "of bf16", "")

// verify compares a report with the ledger: every figure and text of the page with the record that it
// names, every block of the Markdown with the page, and every image with the page's plot.
func verify(files map[string][]byte, ledger string) (figures int, problems []string) {
	shelf := &shelf{dir: ledger}
	page, err := readPage(files[HTMLFile])
	if err != nil {
		return 0, []string{err.Error()}
	}
	for _, p := range page.pieces {
		if p.format != "" {
			figures++
		}
		if err := shelf.check(p); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, text := range page.free {
		if strings.ContainsAny(allowed.Replace(text), "0123456789") {
			problems = append(problems, fmt.Sprintf("%q has a figure without a source", text))
		}
	}
	written, images := readMarkdown(files[MarkdownFile])
	if len(written) != len(page.blocks) {
		problems = append(problems, fmt.Sprintf("%d blocks in Markdown and %d in HTML", len(written), len(page.blocks)))
	}
	for i := range min(len(written), len(page.blocks)) {
		if written[i] != page.blocks[i] {
			problems = append(problems, fmt.Sprintf("block %d is %q in Markdown and %q in HTML", i, written[i], page.blocks[i]))
			break
		}
	}
	return figures, append(problems, verifyPlots(files, images, page.plots)...)
}

// verifyPlots compares each file of a plot with the plot in the page.
func verifyPlots(files map[string][]byte, images, plots map[string]string) (problems []string) {
	if len(images) != len(plots) {
		problems = append(problems, fmt.Sprintf("%d images and %d plots", len(images), len(plots)))
	}
	for name, finding := range images {
		id := "figure-" + strings.TrimSuffix(strings.TrimPrefix(name, "report-"), ".svg")
		if plots[id] == "" || drawn(string(files[name])) != drawn(plots[id]) {
			problems = append(problems, name+" is not the plot of the page")
		}
		description := between(string(files[name]), `<desc id="plot-desc">`, "</desc>")
		if strings.Join(strings.Fields(html.UnescapeString(description)), " ") != strings.Join(strings.Fields(finding), " ") {
			problems = append(problems, fmt.Sprintf("%s: the image says %q, the plot %q", name, finding, description))
		}
	}
	return problems
}

// drawn is what a plot draws, without its head.
func drawn(svg string) string { return between(svg, "<rect class=\"bg\"", "</svg>") }

func between(text, from, to string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, to)
	return text
}

const results = "../../results"

var reports struct {
	sync.Once
	files map[string]map[string][]byte
}

// documents are the files of reports of every kind on the records in results/.
func documents(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	reports.Do(func() { reports.files = allDocuments(t) })
	return reports.files
}

func allDocuments(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	r := openResults(t)
	all := map[string]*Document{}
	entries, err := r.Ledger.List(t.Context(), everyRun)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all[e.ID] = documentOf(t, r, e.ID)
	}
	all["two"] = documentOf(t, r, "20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef")
	benches, tunings := recorded(t, r)
	for id, b := range benches {
		all[id] = b.Document()
	}
	for id, study := range tunings {
		all[id] = study.Document()
	}
	all["ladder"] = ladderOf(t, r)
	files := map[string]map[string][]byte{}
	for name, d := range all {
		files[name] = filesOf(t, d)
	}
	return files
}

// documentOf is the document of runs.
func documentOf(t *testing.T, r Reader, ids ...string) *Document {
	t.Helper()
	var studies []*RunStudy
	for _, id := range ids {
		study, err := r.Run(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		studies = append(studies, study)
	}
	return Runs(studies)
}

// oldRuns lack keys that later versions have added: the first cv, single_launch_us and processes, the
// second processes.
var oldRuns = []string{"20261115-052656-stage0-badad1", "20261116-160542-stage0-134a9f"}

// Every figure of every report on results/ is the ledger's, in Markdown and in HTML. The short test
// has the reports on old runs.
func TestReportsAgreeWithTheLedger(t *testing.T) {
	t.Parallel()
	reports := map[string]map[string][]byte{}
	if testing.Short() {
		r := openResults(t)
		for _, id := range oldRuns {
			reports[id] = filesOf(t, documentOf(t, r, id))
		}
	} else {
		reports = documents(t)
	}
	for name, files := range reports {
		figures, problems := verify(files, results)
		if figures < 10 {
			t.Errorf("%s has %d figures", name, figures)
		}
		if len(problems) > 0 {
			t.Errorf("%s: %d problems, the first: %s", name, len(problems), problems[0])
		}
	}
}

// A report with one altered figure does not agree: in the page, in the Markdown, in a plot.
func TestAlteredReportsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	r := openResults(t)
	files, err := ladderOf(t, r).Files()
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := verify(files, results); len(problems) > 0 {
		t.Fatal(problems)
	}
	digit := regexp.MustCompile(`>(\d+\.\d\d)</data>`)
	svg := "report-ladder.svg"
	for name, alter := range map[string]func(map[string][]byte){
		"page": func(f map[string][]byte) { f[HTMLFile] = replaceNth(f[HTMLFile], digit, ">9.99</data>", 5) },
		"markdown": func(f map[string][]byte) {
			f[MarkdownFile] = bytes.Replace(f[MarkdownFile], []byte("35.60"), []byte("35.61"), 1)
		},
		"sentence": func(f map[string][]byte) {
			f[MarkdownFile] = bytes.Replace(f[MarkdownFile], []byte("9.19x as fast"), []byte("9.20x as fast"), 1)
		},
		"plot file": func(f map[string][]byte) { f[svg] = bytes.Replace(f[svg], []byte("35.60 us"), []byte("35.61 us"), 1) },
		"plot": func(f map[string][]byte) {
			f[HTMLFile] = bytes.Replace(f[HTMLFile], []byte("35.60 us"), []byte("35.61 us"), 1)
		},
		"text": func(f map[string][]byte) {
			f[HTMLFile] = bytes.Replace(f[HTMLFile], []byte(">valid-negative<"), []byte(">merge<"), 1)
		},
		"free": func(f map[string][]byte) {
			f[HTMLFile] = bytes.Replace(f[HTMLFile], []byte("interleaved with it"), []byte("in 7 rounds"), 1)
		},
		"row": func(f map[string][]byte) {
			f[MarkdownFile] = regexp.MustCompile(`(?m)^\| .stage4. .*\n`).ReplaceAll(f[MarkdownFile], nil)
		},
		"source": func(f map[string][]byte) {
			f[HTMLFile] = bytes.Replace(f[HTMLFile], []byte("#headline.shape"), []byte("#headline.shapes"), 1)
		},
	} {
		altered := map[string][]byte{}
		for k, v := range files {
			altered[k] = v
		}
		alter(altered)
		same := true
		for k := range files {
			same = same && bytes.Equal(files[k], altered[k])
		}
		if _, problems := verify(altered, results); len(problems) == 0 || same {
			t.Errorf("%s: the change was not found (changed: %t)", name, !same)
		}
	}
}

func replaceNth(text []byte, pattern *regexp.Regexp, with string, n int) []byte {
	at := pattern.FindAllIndex(text, -1)[n]
	return slices.Concat(text[:at[0]], []byte(with), text[at[1]:])
}
