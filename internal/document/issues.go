package document

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"

	"attune/internal/ci"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/mutate"
	"attune/internal/ptx"
	"attune/internal/run"
	"attune/internal/spec"
)

// Locate returns the path in the checkout of a file that a compiler or a finding names, relative to
// the kernel's folder. It returns the absolute path of a file outside of the checkout, and an empty
// text for one that does not exist.
type Locate func(file string) string

// inSource is the innermost of several source lines, from the inside outwards, that is in the
// checkout, and the calls that lead to it. Without one in the checkout it is the innermost that
// exists.
func inSource(frames []ptx.Frame, locate Locate) (at ci.Location, callers []ci.Location) {
	var found []ci.Location
	for _, f := range frames {
		if file := locate(f.File); file != "" {
			found = append(found, ci.Location{File: file, Line: f.Line, Message: "the call of the inlined function"})
		}
	}
	if len(found) == 0 {
		return ci.Location{}, nil
	}
	first := max(0, slices.IndexFunc(found, ci.Location.InTree))
	at = found[first]
	at.Message = ""
	if callers = found[first+1:]; len(callers) == 0 {
		callers = nil
	}
	return at, callers
}

// RunFindings are the findings of a run: those that failed its correctness gate as errors, the others
// as notices. That the outputs could not be checked is an error too: without it a reader of the list
// would take the run for one in which nothing was found.
func RunFindings(r *run.Run, locate Locate) []ci.Issue {
	var all []ci.Issue
	for _, f := range r.Reported() {
		i := findingIssue(r.Variant, f.Finding, locate, "")
		i.Message = f.Text()
		if !f.Failed {
			i.Level = ci.Notice
		}
		all = append(all, i)
	}
	for _, f := range r.Audit {
		if f.Severity == finding.Error {
			i := findingIssue(r.Variant, f, locate, "")
			i.Message, i.Key = f.String()+"; "+f.Remedy(), f.Variable.Name
			all = append(all, i)
		}
	}
	if i, unchecked := uncheckedIssue(r); unchecked {
		all = append(all, i)
	}
	for n := range all {
		if all[n].Location.File == "" {
			all[n].Location.File = sourceOf(r, locate)
		}
	}
	return all
}

// sourceOf is the file of a finding without a source line: the source of the variant, or else
// kernel.toml. GitHub shows no finding without a file.
func sourceOf(r *run.Run, locate Locate) string {
	if r.Build != nil {
		if file := locate(r.Build.Source); file != "" {
			return file
		}
	}
	return locate(spec.File)
}

// relatedText says what the second place of a finding is.
func relatedText(f finding.Finding) string {
	text := "the access that it conflicts with"
	if f.Is(finding.Uninitialized) {
		text = "the use of the value"
	}
	if f.Other.PTX != "" {
		text += ": " + PTXLine(f.Other.PTX)
	}
	return text
}

// RunIssues are what failed in a run: its findings, and the gates that failed for other reasons.
func RunIssues(r *run.Run, locate Locate) []ci.Issue {
	all := slices.DeleteFunc(RunFindings(r, locate), func(i ci.Issue) bool { return i.Level != ci.Error })
	for _, g := range r.GateOutcomes() {
		if g.Status != gate.Fail || g.Name == "correctness" && len(all) > 0 {
			continue
		}
		i := ci.Issue{Level: ci.Error, Rule: g.Name + " gate", Subject: r.Variant, Message: firstReason(g.Reasons)}
		if len(g.Reasons) > 0 { // such as an error of the compiler
			i.Location, _ = inSource(framesIn(g.Reasons[0]), locate)
		}
		all = append(all, i)
	}
	if r.TimedOut {
		all = append(all, ci.Issue{Level: ci.Error, Rule: "timeout", Subject: r.Variant, Message: r.Failure})
	}
	return all
}

// The rules of a kernel whose outputs could not be checked.
const (
	uncheckedRule = "not-checked"
	referenceRule = "reference"
)

// uncheckedIssue is why the outputs of a run could not be checked. A timeout is an issue of its own.
func uncheckedIssue(r *run.Run) (i ci.Issue, unchecked bool) {
	i = ci.Issue{Level: ci.Error, Rule: uncheckedRule, Subject: r.Variant, Message: firstReason(r.Reasons.Correctness)}
	if r.ReferenceError != "" {
		i.Rule, i.Message = referenceRule, r.ReferenceError
	}
	return i, r.ReferenceError != "" || Unchecked(r) && !r.TimedOut
}

var sourcePlace = regexp.MustCompile(`([\w./+-]+\.(?:cuh?|h|hpp|toml|py)):(\d+)`)

// framesIn are the source lines in a text, in their order.
func framesIn(text string) []ptx.Frame {
	var all []ptx.Frame
	for _, m := range sourcePlace.FindAllStringSubmatch(text, -1) {
		if line, err := strconv.Atoi(m[2]); err == nil {
			all = append(all, ptx.Frame{File: path.Clean(m[1]), Line: line})
		}
	}
	return all
}

// FindingIssue is a finding of `attune sim`. ptx is the located file of the PTX, for findings without
// a source line, and source the file that was run, for those without any line. Both may be empty.
func FindingIssue(subject string, f finding.Finding, locate Locate, ptx, source string) ci.Issue {
	i := findingIssue(subject, f, locate, ptx)
	if f.Severity == finding.Strict {
		i.Level = ci.Notice
	}
	i.Key = PTXLine(f.Where.PTX)
	if i.Location.File == "" {
		i.Location.File = cmp.Or(ptx, source)
	}
	return i
}

// findingIssue is a finding with its source lines, or else its lines in the PTX.
func findingIssue(subject string, f finding.Finding, locate Locate, ptx string) ci.Issue {
	i := ci.Issue{Level: ci.Error, Rule: string(f.Kind), Subject: subject, Message: f.String()}
	i.Location, i.Callers = findingPlace(f.Where, locate, ptx)
	if f.Other != nil {
		if other, _ := findingPlace(*f.Other, locate, ptx); other.File != "" {
			other.Message = relatedText(f)
			i.Related = []ci.Location{other}
		}
	}
	return i
}

// findingPlace is the source line of an instruction, or else its line in the PTX.
func findingPlace(p finding.Place, locate Locate, ptx string) (ci.Location, []ci.Location) {
	at, callers := inSource(p.Frames(), locate)
	if at.File != "" || ptx == "" || p.PTXLine == 0 {
		return at, callers
	}
	return ci.Location{File: ptx, Line: p.PTXLine}, nil
}

// BenchIssues are the variants with an output that is wrong or could not be checked.
func BenchIssues(b *run.Bench) []ci.Issue {
	var all []ci.Issue
	for _, row := range b.Rows {
		if row.Peer || row.Wrong == "" {
			continue
		}
		i := ci.Issue{Level: ci.Error, Rule: "wrong output", Subject: row.Name, Message: row.Shape + ": " + row.Wrong}
		if row.Unchecked {
			i.Rule = uncheckedRule
		}
		all = append(all, i)
	}
	return all
}

// MutationIssues are the mutants that survived, as warnings. ptx is the path of the PTX in the
// checkout; it may be empty.
func MutationIssues(kernel string, r *mutate.Report, ptx string) []ci.Issue {
	var all []ci.Issue
	for _, m := range r.Survivors {
		i := ci.Issue{Level: ci.Warning, Rule: "surviving mutant", Subject: kernel, Key: PTXLine(m.Before) + " " + PTXLine(m.After)}
		i.Message = fmt.Sprintf("%s%s: no check fails if %s becomes %s", survivorPlace(m), m.Kind, PTXLine(m.Before), PTXLine(m.After))
		if ptx != "" {
			i.Location = ci.Location{File: ptx, Line: m.Line}
		}
		all = append(all, i)
	}
	return all
}

// FindingRules are the rules of all kinds of findings, of the simulator's checkers, of every device
// and of the audit, and those of kernels that could not be checked.
func FindingRules() []ci.Rule {
	var rules []ci.Rule
	for _, k := range finding.AllKinds() {
		help := fmt.Sprintf("%s\n\nattune's %s has an example and its fix.", k.Help(), FindingPages([]finding.Kind{k}))
		rules = append(rules, ci.Rule{ID: string(k), Short: k.Short(), Help: help})
	}
	return append(rules,
		ci.Rule{
			ID: uncheckedRule, Short: "The outputs could not be checked",
			Help: "The device cannot run the kernel, so nothing is known about it. The simulator names the instruction that it does not run; check the kernel on a GPU.",
		},
		ci.Rule{
			ID: referenceRule, Short: "The reference failed",
			Help: "There was nothing to compare the outputs with. Correct the reference, or install what its Python lacks: attune doctor.",
		})
}
