package exec

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
)

// Suppressions are findings that a project knows and accepts, each with its reason.
type Suppressions struct {
	rules []suppression
}

// suppression is a line of the file: patterns of the kernel, the source line and the kind.
type suppression struct{ kernel, place, kind, reason string }

// ReadSuppressions reads a file of suppressions: lines of a kernel, a place, a kind and a reason.
func ReadSuppressions(text []byte) (*Suppressions, error) {
	s := &Suppressions{}
	scanner := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	for number := 1; scanner.Scan(); number++ {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("line %d: want KERNEL FILE:LINE KIND REASON, each of the first three may be *", number)
		}
		if !slices.ContainsFunc(finding.AllKinds(), func(k finding.Kind) bool { return matches(words[2], string(k)) }) {
			return nil, fmt.Errorf("line %d: %q is no kind of finding; docs/findings has their names", number, words[2])
		}
		s.rules = append(s.rules, suppression{words[0], words[1], words[2], strings.Join(words[3:], " ")})
	}
	return s, scanner.Err()
}

// reason returns why a finding is accepted.
func (s *Suppressions) reason(f *Found) (string, bool) {
	if s == nil {
		return "", false
	}
	for _, r := range s.rules {
		if matches(r.kernel, f.Kernel) && matches(r.kind, string(f.Kind)) && (r.at(f.Where) || f.Other != nil && r.at(*f.Other)) {
			return r.reason, true
		}
	}
	return "", false
}

// at reports whether the pattern names a place: its file may be given without the folders above it.
func (r suppression) at(p finding.Place) bool {
	if r.place == "*" {
		return true
	}
	for _, frame := range p.Frames() {
		at := fmt.Sprintf("%s:%d", frame.File, frame.Line)
		if matches(r.place, at) || matches("*/"+r.place, at) {
			return true
		}
	}
	return false
}
