package web

import (
	"context"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attune/internal/form"
	"attune/internal/ptx"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// kernelPage is a source file beside the PTX of a build.
type kernelPage struct {
	Kernel   string
	Variants []string
	Archs    []string
	Variant  string
	Arch     string
	Files    []string
	File     string
	Line     int // 0 for none
	Source   []sourceLine
	Cut      bool // the file has more lines
	Build    *toolchain.Record
	Origin   toolchain.Origin
	Budget   *spec.Budget // nil if the stage declares none
	PTX      []ptxLine
	PTXLines int // of the whole file
	PTXFrom  int // first line of the window
	Newer    string
	Older    string
	Findings []sourceFinding
	Run      string // that the findings are of
	recorded string // hash of the sources of that run
	Changed  bool   // the sources are others now
	Problem  string
}

// sourceLine is a line of a source file.
type sourceLine struct {
	Number   int
	Text     string
	PTX      int // instructions that come from it
	Findings []sourceFinding
}

// ptxLine is a line of PTX, with the source line that it comes from.
type ptxLine struct {
	Number int
	Text   string
	File   string // empty if it is unknown
	Line   int
}

// Address is the page of the same build with another source line.
func (p kernelPage) Address(file string, line int) string {
	q := url.Values{"variant": {p.Variant}, "arch": {p.Arch}, "file": {file}}
	if line > 0 {
		q.Set("line", strconv.Itoa(line))
	}
	return "/kernel?" + q.Encode()
}

// window is the page of the same build at another place of the PTX.
func (p kernelPage) window(from int) string {
	return p.Address(p.File, 0) + "&ptx=" + strconv.Itoa(from)
}

// Limits of the page.
const (
	maxSourceLines = 2000
	ptxWindow      = 300
)

func (s *Server) kernelPage(w http.ResponseWriter, r *http.Request) error {
	kernel, folder, err := s.config.Kernel()
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page := kernelPage{Kernel: kernel.Name, Variant: q.Get("variant"), Arch: q.Get("arch"), File: q.Get("file")}
	page.Line, _ = strconv.Atoi(q.Get("line"))   // what is no number is no line
	page.PTXFrom, _ = strconv.Atoi(q.Get("ptx")) // what is no number is the start
	for _, stage := range kernel.Stages {
		page.Variants = append(page.Variants, stage.Name)
	}
	if page.Variant == "" {
		page.Variant = page.Variants[0]
	}
	v, err := kernel.Variant(page.Variant)
	if err != nil {
		page.Problem = err.Error()
		return s.render(w, r, http.StatusBadRequest, "kernel", "Kernel", page)
	}
	page.Variant, page.Archs = v.String(), v.Stage().Archs
	if b := v.Stage().Budget; !b.Unlimited() {
		page.Budget = &b
	}
	if page.Arch == "" && len(page.Archs) > 0 {
		page.Arch = page.Archs[len(page.Archs)-1]
	}
	if !slices.Contains(page.Archs, page.Arch) {
		page.Problem = "architecture " + strconv.Quote(clip(page.Arch, 40)) + ": " + v.Stage().Name + " builds for " + strings.Join(page.Archs, ", ")
		return s.render(w, r, http.StatusBadRequest, "kernel", "Kernel", page)
	}
	status := http.StatusOK
	if err := s.fillKernel(r.Context(), &page, kernel, v, folder); err != nil {
		page.Problem, status = err.Error(), statusOf(err)
	}
	return s.render(w, r, status, "kernel", page.Variant+", kernel "+page.Kernel, page)
}

// fillKernel reads the sources, the build and the findings.
func (s *Server) fillKernel(ctx context.Context, page *kernelPage, kernel *spec.Kernel, v spec.Variant, folder fs.FS) error {
	images := s.config.Images(folder)
	target := form.Target(kernel, v, page.Arch)
	files, err := images.Sources(target)
	if err != nil {
		return err
	}
	page.Files = slices.Sorted(maps.Keys(files))
	if page.File == "" {
		page.File = target.Source
	}
	text, ok := files[page.File] // a name among those of the build, never a path
	if !ok {
		return failure(http.StatusNotFound, "%q is no file of this build; it has %s", clip(page.File, 80), strings.Join(page.Files, ", "))
	}
	s.readFindings(ctx, page)
	page.readSource(string(text))
	image, origin, err := images.Lookup(target)
	if err != nil {
		page.Problem = err.Error()
		return nil // the source is shown without PTX
	}
	page.Build, page.Origin = &image.Record, origin
	page.Changed = page.recorded != "" && page.recorded != image.Record.SourceHash
	page.readPTX(string(image.PTX))
	return nil
}

func (p *kernelPage) readSource(text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if len(p.Source) == maxSourceLines {
			p.Cut = true
			return
		}
		at := sourceLine{Number: len(p.Source) + 1, Text: clip(line, 400)}
		for _, f := range p.Findings {
			if slices.ContainsFunc(f.Places, func(at ptx.Frame) bool { return at.Line == len(p.Source)+1 && sameFile(at.File, p.File) }) {
				at.Findings = append(at.Findings, f)
			}
		}
		p.Source = append(p.Source, at)
	}
}

// sameFile reports whether a path of a record names a file of the kernel's folder.
func sameFile(recorded, file string) bool {
	return recorded != "" && (recorded == file || path.Base(recorded) == recorded && recorded == path.Base(file))
}

// maxFindingRuns limits the records that are read for findings.
const maxFindingRuns = 5

// readFindings takes those of the newest run of the variant that was checked by the simulator.
func (s *Server) readFindings(ctx context.Context, p *kernelPage) {
	l, err := s.records.now(ctx)
	if err != nil {
		return // the lists say so
	}
	read := 0
	for _, e := range l.entries {
		if e.Kernel != p.Kernel || e.Variant != p.Variant || e.Device != "sim" {
			continue
		}
		if read++; read > maxFindingRuns {
			return
		}
		r, err := s.records.run(ctx, e.ID)
		if err != nil || len(r.Correctness) == 0 {
			continue
		}
		p.Findings, p.Run = findingsOf(r), r.ID
		if r.Build != nil {
			p.recorded = r.Build.SourceHash
		}
		return
	}
}

// location is a .loc directive: file, line, column.
var location = regexp.MustCompile(`^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+`)

// fileDirective is a .file directive: number and path.
var fileDirective = regexp.MustCompile(`^\s*\.file\s+(\d+)\s+"([^"]+)"`)

// locatePTX gives each line of PTX the source line of the .loc before it.
func locatePTX(text string) []ptxLine {
	files := map[string]string{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines { // nvcc writes them at the end
		if m := fileDirective.FindStringSubmatch(line); m != nil {
			files[m[1]] = m[2]
		}
	}
	var all []ptxLine
	file, number := "", 0
	for i, line := range lines {
		if m := location.FindStringSubmatch(line); m != nil {
			file = files[m[1]]
			number, _ = strconv.Atoi(m[2])
		}
		l := ptxLine{Number: i + 1, Text: clip(strings.TrimRight(line, "\r"), 400)}
		if isInstruction(line) {
			l.File, l.Line = file, number
		}
		all = append(all, l)
	}
	return all
}

// isInstruction reports whether a line of PTX is an instruction: it ends with a semicolon and is no
// directive.
func isInstruction(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasSuffix(line, ";") && !strings.HasPrefix(line, ".") && !strings.HasPrefix(line, "//")
}

// readPTX shows the instructions of the chosen source line, or a window of the whole file.
func (p *kernelPage) readPTX(text string) {
	all := locatePTX(text)
	p.PTXLines = len(all)
	for _, l := range all {
		if l.Line > 0 && l.Line <= len(p.Source) && sameFile(l.File, p.File) {
			p.Source[l.Line-1].PTX++
		}
	}
	if p.Line > 0 {
		p.PTX = slices.DeleteFunc(all, func(l ptxLine) bool { return l.Line != p.Line || !sameFile(l.File, p.File) })
		p.PTX = p.PTX[:min(len(p.PTX), ptxWindow)]
		return
	}
	from := max(1, min(p.PTXFrom, len(all)))
	to := min(from+ptxWindow, len(all)+1)
	p.PTXFrom, p.PTX = from, all[from-1:to-1]
	if from > 1 {
		p.Newer = p.window(max(1, from-ptxWindow))
	}
	if to <= len(all) {
		p.Older = p.window(to)
	}
}
