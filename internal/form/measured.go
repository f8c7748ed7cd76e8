package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"attune/internal/device"
	"attune/internal/regular"
	"attune/internal/rule"
	"attune/internal/toolchain"
)

// SelectionVariable names the environment variable with the file of a Measured.
const SelectionVariable = "ATTUNE_SELECTION"

// Measured is a selection that was measured on a GPU: which form of the warp kernel computes which
// problems there. `attune tune --selection --install` writes it. attune_selection.c reads it too.
type Measured struct {
	SchemaVersion   int              `json:"schema_version"`
	GPU             string           `json:"gpu"`
	Arch            string           `json:"arch"`
	Multiprocessors int              `json:"multiprocessors"`
	Choices         []MeasuredChoice `json:"choices"`

	Attune string          `json:"attune,omitempty"` // the version that measured it
	Time   string          `json:"time,omitempty"`
	Driver string          `json:"driver,omitempty"` // newest CUDA version
	Probe  json.RawMessage `json:"probe,omitempty"`  // rates of the GPU, which the libraries do not read
	Times  json.RawMessage `json:"times,omitempty"`  // that the choices follow from
}

// MeasuredVersion is the version of the file.
const MeasuredVersion = 1

// MeasuredChoice is a form, and the condition under which it computes a problem; empty for all. Of the
// choices whose forms compute a problem the first one counts.
type MeasuredChoice struct {
	When      string `json:"when,omitempty"`
	Variant   string `json:"variant"`
	Selection string `json:"selection,omitempty"` // of kernel.toml, that was tuned

	rule *rule.Rule // nil for all
}

// MeasuredNames are what conditions see: properties of the problem, by the names of warp's axes. `rows`
// are the query rows of a K/V head, and `tiles` those of 64 rows of a query head.
var MeasuredNames = []string{"head_dim", "batch", "kv_heads", "group", "queries", "keys", "causal", "rows", "tiles"}

// Properties are the values of MeasuredNames.
func (p *Problem) Properties() []int {
	tiles := p.Batch * p.Heads * ceilDiv(p.Queries, measuredRows)
	return []int{p.HeadDim, p.Batch, p.KVHeads, p.Heads / p.KVHeads, p.Queries, p.Keys, toInt(p.Causal), p.rows(), tiles}
}

// measuredRows are those of the tiles that conditions count.
const measuredRows = 64

// MeasuredPath is the file of the selection for a device: that of ATTUNE_SELECTION, or one in the cache.
func MeasuredPath(facts device.Facts) (path string, named bool, err error) {
	if path := os.Getenv(SelectionVariable); path != "" {
		return path, true, nil
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return "", false, err
	}
	return filepath.Join(cache, "selections", fmt.Sprintf("%s-%d.json", facts.Arch, facts.Multiprocessors)), false, nil
}

// findMeasured reads the selection for a device whose table has some forms; nil without one.
func findMeasured(facts device.Facts, forms []*Form) (*Measured, error) {
	path, named, err := MeasuredPath(facts)
	if errors.Is(err, toolchain.ErrNoCacheDir) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ReadMeasured(path)
	if !named && cannotOpen(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m, m.check(path, facts, forms)
}

// cannotOpen reports whether an error is that of a path that the system does not open. A cache there has
// no selection, as that of a service has none whose HOME is another user's.
func cannotOpen(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number)
}

// check refuses a selection of another version, for another GPU, or with forms that do not exist.
func (m *Measured) check(path string, facts device.Facts, forms []*Form) error {
	switch {
	case m.SchemaVersion != MeasuredVersion:
		return fmt.Errorf("%s has version %d, and this library reads %d; write it again by its attune tune", path, m.SchemaVersion, MeasuredVersion)
	case m.Arch != facts.Arch || m.Multiprocessors != facts.Multiprocessors:
		return fmt.Errorf("%s is for %s with %d multiprocessors, and the GPU is %s with %d; unset %s, or tune this GPU",
			path, m.Arch, m.Multiprocessors, facts.Arch, facts.Multiprocessors, SelectionVariable)
	}
	for _, c := range m.Choices {
		if !slices.ContainsFunc(forms, func(f *Form) bool { return withoutFP16(f.Variant()) == withoutFP16(c.Variant) }) {
			return fmt.Errorf("%s chooses %s, which this library does not have; write it again by its attune tune", path, c.Variant)
		}
	}
	return nil
}

// maxMeasured are the bytes of a file.
const maxMeasured = 1 << 20

// ReadMeasured reads the file of a selection.
func ReadMeasured(path string) (*Measured, error) {
	text, err := regular.Read(path, maxMeasured)
	if err != nil {
		return nil, fmt.Errorf("the selection cannot be opened: %w", err)
	}
	m := &Measured{SchemaVersion: MeasuredVersion}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s is no selection of attune tune: %w; write it again, or delete it", path, err)
	}
	if err := m.compile(); err != nil {
		return nil, fmt.Errorf("%s is no selection of attune tune: %w; write it again, or delete it", path, err)
	}
	return m, nil
}

// Install adds the choices of a selection to the file for a device, in place of those that it had, and
// returns its path.
func Install(facts device.Facts, selection string, choices []MeasuredChoice) (path string, err error) {
	path, _, err = MeasuredPath(facts)
	if err != nil {
		return "", err
	}
	m, err := ReadMeasured(path)
	if errors.Is(err, fs.ErrNotExist) {
		m, err = &Measured{}, nil
	}
	if err != nil {
		return "", err
	}
	if m.Arch != facts.Arch || m.Multiprocessors != facts.Multiprocessors {
		m.Choices = nil // of another GPU
	}
	m.SchemaVersion, m.GPU, m.Arch, m.Multiprocessors = MeasuredVersion, facts.Name, facts.Arch, facts.Multiprocessors
	m.Choices = slices.DeleteFunc(m.Choices, func(c MeasuredChoice) bool { return c.Selection == selection })
	for _, c := range choices {
		c.Selection = selection
		m.Choices = append(m.Choices, c)
	}
	return path, m.Write(path)
}

// Write writes the file of a selection.
func (m *Measured) Write(path string) error {
	if err := m.compile(); err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // attune_selection.c reads no other escapes than those of a quote
	encoder.SetIndent("", " ")
	if err := errors.Join(encoder.Encode(m), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return err
	}
	return regular.Write(path, text.Bytes())
}

// compile compiles the conditions.
func (m *Measured) compile() error {
	for i := range m.Choices {
		c := &m.Choices[i]
		if c.When == "" {
			continue
		}
		compiled, problems := rule.Parse(c.When, rule.Vocabulary{Names: MeasuredNames})
		if len(problems) > 0 {
			return fmt.Errorf("the condition %q: %w", c.When, problems[0])
		}
		c.rule = compiled
	}
	return nil
}

// Holds reports whether the condition of a choice holds for a problem. One that is no condition does not.
func (c *MeasuredChoice) Holds(p *Problem) bool {
	one := Measured{Choices: []MeasuredChoice{*c}}
	return one.compile() == nil && one.Choices[0].holds(p)
}

func (c *MeasuredChoice) holds(p *Problem) bool {
	values := make([]rule.Value, len(MeasuredNames))
	for i, n := range p.Properties() {
		values[i] = rule.Int(int64(n))
	}
	return c.rule == nil || c.rule.Holds(values)
}

// Comparisons are those of the condition.
func (c *MeasuredChoice) Comparisons() int {
	if c.When == "" {
		return 0
	}
	return 1 + strings.Count(c.When, " and ")
}

// withoutFP16 is the variant in whose place one for FP16 counts.
func withoutFP16(variant string) string { return strings.Replace(variant, "_fp16", "", 1) }

// rank is the place of a form among those of the selection that take a problem; of others their number.
// A form for FP16 has the place of that for BF16.
func (m *Measured) rank(p *Problem, f *Form) int {
	if m == nil {
		return 0
	}
	for i, c := range m.Choices {
		if withoutFP16(c.Variant) == withoutFP16(f.Variant()) && c.holds(p) {
			return i
		}
	}
	return len(m.Choices)
}
