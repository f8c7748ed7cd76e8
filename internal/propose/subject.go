package propose

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"attune/internal/patch"
	"attune/internal/rule"
	"attune/internal/spec"
	"attune/internal/tune"
)

// Subject is the kernel that is searched.
type Subject struct {
	Kernel    *spec.Kernel
	Default   spec.Variant
	Space     *tune.Space // of the search; all variants of the default's stage if nil
	Objective string
	Shapes    []spec.Shape
	Folder    fs.FS             // of the kernel; it is only read
	Sources   map[string][]byte // that a build of the default reads from the folder, by path
}

// hello is the first message to a program.
func (s *Subject) hello(limits Limits) hello {
	h := hello{
		Type: "hello", Protocol: Protocol, Kernel: s.Kernel.Name, Variant: s.Default.String(), Objective: s.Objective, Limits: limits,
		Space: space{Knobs: []knob{}, Constraints: []constraint{}},
	}
	for _, shape := range s.Shapes {
		h.Shapes = append(h.Shapes, shape.String())
	}
	for _, setting := range s.Default.Values() {
		at := slices.IndexFunc(s.Kernel.Knobs, func(k spec.Knob) bool { return k.Name == setting.Knob })
		k := s.Kernel.Knobs[at]
		h.Space.Knobs = append(h.Space.Knobs, knob{k.Name, string(k.Layer), s.values(k), setting.Value, k.About})
	}
	for _, c := range s.Kernel.Constraints {
		if len(c.Sources) == 0 || slices.Contains(c.Sources, s.Default.Stage().Source) {
			h.Space.Constraints = append(h.Space.Constraints, constraint{c.Rule, c.Why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sources)) {
		h.Sources = append(h.Sources, source{name, string(s.Sources[name])})
	}
	return h
}

// values are those of a knob that the search varies: one of a knob that it keeps.
func (s *Subject) values(k spec.Knob) []int {
	if s.Space == nil {
		return k.Values
	}
	at := slices.IndexFunc(s.Space.Knobs, func(own tune.Knob) bool { return own.Name == k.Name })
	return slices.DeleteFunc(slices.Clone(k.Values), func(v int) bool { return !slices.Contains(s.Space.Knobs[at].Values, rule.Int(int64(v))) })
}

// variant is the proposed variant: of a name, or the default with some knobs changed.
func (s *Subject) variant(name string, knobs map[string]int) (spec.Variant, error) {
	if name != "" && knobs != nil {
		return spec.Variant{}, errors.New(`it has "variant" and "knobs"; one of them is enough`)
	}
	if name == "" {
		values := map[string]int{}
		for _, setting := range s.Default.Values() {
			values[setting.Knob] = setting.Value
		}
		maps.Copy(values, knobs)
		stage := s.Default.Stage()
		name = stage.Name
		own := stage.Variant()
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if value, known := own.Value(k); !known || value != values[k] {
				name += "+" + spec.Setting{Knob: k, Value: values[k]}.String()
			}
		}
	}
	v, err := s.Kernel.Variant(name)
	if err != nil {
		return v, err
	}
	if v.Stage() != s.Default.Stage() {
		return v, fmt.Errorf("it is a variant of %s; the search is for variants of %s", v.Stage().Name, s.Default.Stage().Name)
	}
	if s.Space == nil {
		return v, nil
	}
	for _, setting := range v.Values() {
		at := slices.IndexFunc(s.Kernel.Knobs, func(k spec.Knob) bool { return k.Name == setting.Knob })
		if values := s.values(s.Kernel.Knobs[at]); !slices.Contains(values, setting.Value) {
			return v, fmt.Errorf("the search keeps %s=%d", setting.Knob, values[0])
		}
	}
	return v, nil
}

// sourceEndings are those of files that a patch may add.
var sourceEndings = []string{".cu", ".cuh", ".h", ".hpp", ".inc"}

// patched returns the changed sources of a diff, by path, and the diff in one form, or the reason why
// it is refused.
func (s *Subject) patched(diff []byte) (files map[string][]byte, kept []byte, err error) {
	p, err := patch.Parse(diff)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range p.Files {
		if err := s.mayChange(f); err != nil {
			return nil, nil, err
		}
	}
	if files, err = p.Apply(s.Folder); err != nil {
		return nil, nil, err
	}
	same := true
	for name, text := range files {
		if err := patch.Outside(name, s.Sources[name], text); err != nil {
			return nil, nil, err
		}
		same = same && bytes.Equal(text, s.Sources[name])
	}
	if same {
		return nil, nil, errors.New("the diff changes nothing")
	}
	return files, []byte(p.String()), nil
}

// mayChange returns an error for a file that a patch must not change.
func (s *Subject) mayChange(f patch.File) error {
	if what := s.judge(f.Path); what != "" {
		return fmt.Errorf("%s is %s; a patch must not change what is checked", f.Path, what)
	}
	if f.New {
		if !slices.Contains(sourceEndings, path.Ext(f.Path)) {
			return fmt.Errorf("%s is no source; a patch adds only files that end in %s", f.Path, strings.Join(sourceEndings, ", "))
		}
		return nil
	}
	if _, read := s.Sources[f.Path]; !read {
		if _, err := fs.Stat(s.Folder, f.Path); errors.Is(err, fs.ErrNotExist) {
			return nil // Apply reports it
		}
		return fmt.Errorf("%s is not read by the build; a patch changes only %s", f.Path, strings.Join(slices.Sorted(maps.Keys(s.Sources)), ", "))
	}
	return nil
}

// judge says what a file is that decides whether a kernel is right; empty for other files.
func (s *Subject) judge(name string) string {
	below := func(folder string) bool {
		return folder != "" && (name == folder || strings.HasPrefix(name, folder+"/"))
	}
	if name == spec.File {
		return "the declaration of the kernel"
	}
	d := s.Kernel.Declared
	if d == nil {
		return ""
	}
	if below(path.Clean(d.Reference.Path)) {
		return "the reference"
	}
	for _, a := range d.Args {
		if file, _, _ := strings.Cut(a.File, "#"); file != "" && name == path.Clean(file) {
			return "an input"
		}
	}
	return ""
}
