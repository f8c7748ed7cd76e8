package exec

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// Outcome is what a program has done on the simulator.
type Outcome struct {
	Launches         int       `json:"launches"`
	WarpInstructions uint64    `json:"warp_instructions"`
	Kernels          []*Kernel `json:"kernels"`
	Findings         []*Found  `json:"findings"`
	Suppressed       []*Found  `json:"suppressed,omitempty"`
	Refused          []Refusal `json:"refused,omitempty"`
	Hosted           []*Hosted `json:"hosted,omitempty"`      // calls that the host has computed
	Unsupported      []string  `json:"unsupported,omitempty"` // entry points that the program has called and attune has not
	Exit             int       `json:"exit"`                  // of the program; 128 and the signal if one ended it
	Signal           string    `json:"signal,omitempty"`
}

// Kernel is what a kernel has done.
type Kernel struct {
	Name             string  `json:"name"`
	Mangled          string  `json:"mangled,omitempty"`
	Launches         int     `json:"launches"`
	Checked          int     `json:"checked"`           // launches with checkers
	Skipped          int     `json:"skipped,omitempty"` // repeats that would have changed nothing
	WarpInstructions uint64  `json:"warp_instructions"`
	Seconds          float64 `json:"seconds"` // of the simulation
}

// Found is a finding in a kernel. It is reported once for all launches.
type Found struct {
	Kernel     string
	FirstIn    int    // the first launch of the kernel that has it, from 1
	LaunchesIn int    // that have it
	Reason     string // why it is suppressed
	finding.Finding
}

// MarshalJSON writes the members of both: Finding writes itself.
func (f *Found) MarshalJSON() ([]byte, error) {
	head, err := json.Marshal(struct {
		Kernel     string `json:"kernel"`
		FirstIn    int    `json:"launch"`
		LaunchesIn int    `json:"launches"`
		Reason     string `json:"reason,omitempty"`
	}{f.Kernel, f.FirstIn, f.LaunchesIn, f.Reason})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(f.Finding)
	if err != nil {
		return nil, err
	}
	return append(append(head[:len(head)-1], ','), body[1:]...), nil
}

// Refusal is a kernel that the simulator does not run.
type Refusal struct {
	Kernel string `json:"kernel"`
	Why    string `json:"why"`
}

func (o *Outcome) kernel(f *function) *Kernel {
	i := slices.IndexFunc(o.Kernels, func(k *Kernel) bool { return k.Mangled == f.entry.Name })
	if i < 0 {
		i = len(o.Kernels)
		o.Kernels = append(o.Kernels, &Kernel{Name: f.short, Mangled: f.entry.Name})
	}
	return o.Kernels[i]
}

func (o *Outcome) refuse(kernel, why string) {
	r := Refusal{kernel, why}
	if !slices.Contains(o.Refused, r) {
		o.Refused = append(o.Refused, r)
	}
}

// Failed counts the findings that are defects.
func (o *Outcome) Failed(strict bool) int {
	n := 0
	for _, f := range o.Findings {
		if f.Fails(strict) {
			n++
		}
	}
	return n
}

// Fails reports whether a finding is a defect: an error, or a strict finding where those count.
func (f *Found) Fails(strict bool) bool {
	return f.Severity == finding.Error || strict && f.Severity == finding.Strict
}

// add notes a finding of a launch, and reports it the first time.
func (s *session) add(j *job, f finding.Finding) {
	if f.Severity == finding.Note {
		return
	}
	s.relate(&f)
	s.addTo(&Found{Kernel: j.function.short, FirstIn: j.number, LaunchesIn: 1, Finding: f}, j.function.entry.Name)
}

// addNamed notes a finding of a function that is no kernel.
func (s *session) addNamed(function string, f finding.Finding) {
	s.addTo(&Found{Kernel: function, FirstIn: 1, LaunchesIn: 1, Finding: f}, function)
}

func (s *session) addTo(found *Found, mangled string) {
	key := mangled + "\x00" + found.Key()
	reason, accepted := s.options.Suppress.reason(found)
	found.Reason = reason
	s.keepFinding(found)
	if seen := s.found[key]; seen != nil {
		seen.Count += found.Count
		seen.LaunchesIn++
		return
	}
	s.found[key] = found
	if accepted {
		s.outcome.Suppressed = append(s.outcome.Suppressed, found)
		return
	}
	s.outcome.Findings = append(s.outcome.Findings, found)
	if s.options.Report != nil {
		s.options.Report(found)
	}
}

// relate makes the paths of source files below the working folder relative to it: a finding shows the
// innermost line that is in the project. A detail may have paths too: the places of warps that wait.
func (s *Server) relate(f *finding.Finding) {
	f.Where = s.relatedPlace(f.Where)
	if filepath.IsAbs(s.options.Folder) {
		f.Detail = strings.ReplaceAll(f.Detail, " at "+filepath.Clean(s.options.Folder)+"/", " at ")
	}
	if f.Other != nil {
		other := s.relatedPlace(*f.Other)
		f.Other = &other
	}
}

func (s *Server) relatedPlace(p finding.Place) finding.Place {
	p.File = s.related(p.File)
	callers := make([]ptx.Frame, 0, len(p.Callers))
	for _, c := range p.Callers {
		c.File = s.related(c.File)
		callers = append(callers, c)
	}
	p.Callers = callers
	return p
}

func (s *Server) related(file string) string {
	if !filepath.IsAbs(file) {
		return file
	}
	relative, err := filepath.Rel(s.options.Folder, file)
	if err != nil || !filepath.IsLocal(relative) {
		return file
	}
	return filepath.ToSlash(relative)
}

// checks reports whether the launches of a kernel run with checkers.
func (o *Options) checks(short, mangled string) bool {
	match := func(list []string) bool {
		return slices.ContainsFunc(list, func(pattern string) bool { return matches(pattern, short) || matches(pattern, mangled) })
	}
	return (len(o.Only) == 0 || match(o.Only)) && !match(o.Skip)
}

// matches reports whether a name is that of a pattern, where * stands for any characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[last])
}

// sort puts what is listed by name in order.
func (o *Outcome) sort() {
	slices.SortFunc(o.Kernels, func(a, b *Kernel) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mangled, b.Mangled)) })
	slices.Sort(o.Unsupported)
}
