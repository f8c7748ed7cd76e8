package document

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/terminal"
)

// maxVariantName is the longest variant that tables print as it is, in bytes.
const maxVariantName = 30

// narrowVariantName is the same on a narrow screen.
const narrowVariantName = 16

// shortNames shortens variants in tables: the stage and the number of other knob values, such as
// stage7b+8. The full names are printed once, below the table.
type shortNames struct {
	longest int               // variant that is printed as it is, in bytes
	short   map[string]string // by variant
	full    []string          // the shortened variants
}

func newShortNames(variants ...string) *shortNames {
	n := &shortNames{longest: maxVariantName, short: map[string]string{}}
	for _, v := range variants {
		n.add(v)
	}
	return n
}

// add returns the name of a variant in tables. Different variants get different names.
func (n *shortNames) add(variant string) string {
	if name, ok := n.short[variant]; ok {
		return name
	}
	name := variant
	if stage, knobs, found := strings.Cut(variant, "+"); found && len(variant) > n.longest {
		name = fmt.Sprintf("%s+%d", stage, strings.Count(knobs, "+")+1)
		for letter, base := 'b', name; n.taken(name); letter++ {
			name = base + string(letter)
		}
		n.full = append(n.full, variant)
	}
	n.short[variant] = name
	return name
}

func (n *shortNames) taken(name string) bool {
	return slices.ContainsFunc(n.full, func(v string) bool { return n.short[v] == name })
}

// write writes the shortened names in a text with their full names.
func (n *shortNames) write(w io.Writer, s terminal.Screen, text string) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:\n\x1b", r) })
	for _, v := range n.full {
		if slices.Contains(words, n.short[v]) { // its column may have been dropped
			s.Paragraph(w, n.short[v]+" is ", v, 2)
		}
	}
}

func verdictColour(verdict string) terminal.Colour {
	word, _, _ := strings.Cut(verdict, " (")
	switch gate.Verdict(word) {
	case gate.Merge, correctUntimed:
		return terminal.Green
	case gate.Incorrect, gate.OverBudget:
		return terminal.Red
	case gate.ValidNegative, gate.Inconclusive:
		return terminal.Yellow
	}
	return terminal.Plain
}

func statusColour(status gate.Status) terminal.Colour {
	switch status {
	case gate.Pass:
		return terminal.Green
	case gate.Fail:
		return terminal.Red
	}
	return terminal.Plain
}

// wordColour is the colour of a cell that is an outcome.
func wordColour(cell string) terminal.Colour {
	switch cell {
	case "FAIL", "WRONG", string(measure.Slower):
		return terminal.Red
	case "pass", string(measure.Faster):
		return terminal.Green
	}
	return terminal.Plain
}

// shortID is the random end of an id, which `attune show` accepts.
func shortID(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }
