package finding

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attune/internal/ptx"
)

// members are the JSON keys of a finding without its methods.
type members Finding

// written is the JSON of a finding: the keys of earlier versions that programs read, and its members.
type written struct {
	Kind  Kind   `json:"kind"`
	Text  string `json:"text"`
	File  string `json:"file,omitempty"` // the outermost source line, in the kernel function
	Line  int    `json:"line,omitempty"`
	Inner *line  `json:"inner,omitempty"` // the innermost
	What  string `json:"what,omitempty"`  // the variable
	members
}

// line is a source line and the calls that lead to it.
type line struct {
	File    string      `json:"file"`
	Line    int         `json:"line"`
	Callers []ptx.Frame `json:"callers,omitempty"`
}

// MarshalJSON writes the finding, with its text.
func (f Finding) MarshalJSON() ([]byte, error) {
	w := written{Kind: f.Kind, Text: f.Text(), What: f.Variable.String(), members: members(f)}
	if frames := f.Where.Frames(); len(frames) > 0 {
		outermost := frames[len(frames)-1]
		w.File, w.Line = outermost.File, outermost.Line
		w.Inner = &line{f.Where.File, f.Where.Line, f.Where.Callers}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads a finding, also of records that have its text in place of its members.
func (f *Finding) UnmarshalJSON(text []byte) error {
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*f = Finding(w.members)
	f.Kind = w.Kind
	if f.Severity == "" {
		f.restore(&w)
	}
	return nil
}

// UnmarshalJSON reads a place, also the text of one, which findings of the audit had.
func (p *Place) UnmarshalJSON(text []byte) error {
	type plain Place
	var described string
	if json.Unmarshal(text, &described) != nil {
		return json.Unmarshal(text, (*plain)(p))
	}
	if at, ok := parsePlace(described); ok {
		*p = at
	}
	return nil
}

// restore sets the members from the keys of an earlier version: those of the audit had a text without
// places, and the others a text with places, count and detail.
func (f *Finding) restore(w *written) {
	f.Severity, f.Detail, f.Variable.Name = Error, w.Text, w.What
	if w.What != "" {
		return
	}
	f.Count = 1
	f.parse(w.Text)
	switch {
	case w.Inner != nil:
		f.Where.setFrames(append([]ptx.Frame{{File: w.Inner.File, Line: w.Inner.Line}}, w.Inner.Callers...))
	case f.Where.File == "" && w.File != "":
		f.Where.File, f.Where.Line = w.File, w.Line
	}
}

// described is the text of a finding about an instruction: kind, places, count and detail.
var described = regexp.MustCompile(`(?s)^\S+ at (.+?)(?: with (.+?))? \((once|\d+ times)\): (.*)$`)

// parse sets the members from a text that Text has made. Other texts stay as the detail.
func (f *Finding) parse(text string) {
	m := described.FindStringSubmatch(text)
	if m == nil {
		return
	}
	found := *f
	var ok bool
	if found.Where, ok = parsePlace(m[1]); !ok {
		return
	}
	if m[2] != "" {
		other, _ := parsePlace(m[2])
		if f.Other != nil {
			other.setFrames(append([]ptx.Frame{{File: f.Other.File, Line: f.Other.Line}}, f.Other.Callers...))
		}
		found.Other = &other
	}
	fmt.Sscanf(m[3], "%d", &found.Count) // "once" leaves 1
	if found.Detail = m[4]; found.Text() == text {
		*f = found
	}
}

var (
	inSource = regexp.MustCompile(`^(.+) \(ptx:(\d+)(, called from .+)?\)$`)
	inPTX    = regexp.MustCompile(`^ptx:(\d+)$`)
	inFile   = regexp.MustCompile(`^(.+):(\d+)$`)
)

// parsePlace reads the text of a place.
func parsePlace(text string) (Place, bool) {
	if m := inPTX.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[1])
		return Place{PTXLine: n}, err == nil
	}
	m := inSource.FindStringSubmatch(text)
	if m == nil {
		return Place{}, false
	}
	n, err := strconv.Atoi(m[2])
	p := Place{PTXLine: n, Source: m[1] + m[3]}
	if frames := parseFrames(p.Source); len(frames) > 0 {
		p.setFrames(frames)
	}
	return p, err == nil
}

// parseFrames reads the source lines of a place, from the inside outwards: "a.cuh:5, called from
// k.cu:9". The first version wrote them from the outside inwards: "k.cu:9 in a.cuh:5".
func parseFrames(source string) []ptx.Frame {
	parts := strings.Split(strings.Replace(source, ", called from ", ", ", 1), ", ")
	if inwards := strings.Split(source, " in "); len(inwards) > 1 {
		slices.Reverse(inwards)
		parts = inwards
	}
	var frames []ptx.Frame
	for _, part := range parts {
		m := inFile.FindStringSubmatch(part)
		if m == nil {
			return nil
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil
		}
		frames = append(frames, ptx.Frame{File: m[1], Line: n})
	}
	return frames
}
