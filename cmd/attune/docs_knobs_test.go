package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"attune/internal/spec"
	"attune/internal/terminal"
)

// knobBlock is a list of the knobs of a source in a document, between its marks.
var knobBlock = regexp.MustCompile(`(?s)(<!-- knobs (\S+) -->\n).*?(<!-- /knobs -->)`)

// The lists of knobs in docs/kernels are made of kernel.toml.
func TestDocsKnobs(t *testing.T) {
	kernel, _, err := (&app{kernelDir: filepath.Join(root, "kernels")}).kernel()
	if err != nil {
		t.Fatal(err)
	}
	cover, listed := kernel.Cover(), map[string]bool{}
	for _, path := range documents(t) {
		writeDocument(t, path, knobBlock.ReplaceAllStringFunc(readDocument(t, path), func(block string) string {
			m := knobBlock.FindStringSubmatch(block)
			listed[m[2]] = true
			return m[1] + knobList(kernel, cover, m[2]) + m[3]
		}))
	}
	for _, stage := range kernel.Stages {
		if !listed[stage.Source] {
			t.Errorf("no document lists the knobs of %s", stage.Source)
			listed[stage.Source] = true
		}
	}
}

// knobList lists the knobs of a source with the values that some variant has.
func knobList(kernel *spec.Kernel, cover []spec.Variant, source string) string {
	var list strings.Builder
	for _, knob := range kernel.Knobs {
		var values []string
		for _, value := range knob.Values {
			if slices.ContainsFunc(cover, func(v spec.Variant) bool {
				has, ok := v.Value(knob.Name)
				return ok && has == value && v.Stage().Source == source
			}) {
				values = append(values, strconv.Itoa(value))
			}
		}
		if len(values) > 0 {
			text := fmt.Sprintf("`%s` (%s): %s", knob.Name, strings.Join(values, ", "), knob.About)
			fmt.Fprintf(&list, "- %s\n", strings.Join(terminal.Wrap(text, maxColumns-2), "\n  "))
		}
	}
	return list.String()
}
