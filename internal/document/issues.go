package document

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"

	"attune/internal/audit"
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
// as notices.
func RunFindings(r *run.Run, locate Locate) []ci.Issue {
	var all []ci.Issue
	seen := map[string]bool{}
	add := func(level ci.Level, f finding.Finding) {
		if key := string(level) + f.Key(); !seen[key] { // one place fails on many shapes
			seen[key] = true
			i := findingIssue(r.Variant, f, locate, "")
			i.Level, i.Message = level, f.Text()
			all = append(all, i)
		}
	}
	for i := range r.Correctness {
		c := &r.Correctness[i]
		for _, f := range c.Findings {
			add(ci.Error, f)
		}
		for _, f := range c.Notes {
			add(ci.Notice, f)
		}
	}
	for _, f := range r.Audit {
		if f.Severity == finding.Error {
			i := findingIssue(r.Variant, f, locate, "")
			i.Message, i.Key = f.String()+"; "+audit.Remedy(f), f.Variable.Name
			all = append(all, i)
		}
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
	if r.ReferenceError != "" {
		all = append(all, ci.Issue{Level: ci.Error, Rule: "reference", Subject: r.Variant, Message: r.ReferenceError})
	}
	if r.TimedOut {
		all = append(all, ci.Issue{Level: ci.Error, Rule: "timeout", Subject: r.Variant, Message: r.Failure})
	}
	return all
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

// BenchIssues are the variants with a wrong output.
func BenchIssues(b *run.Bench) []ci.Issue {
	var all []ci.Issue
	for _, row := range b.Rows {
		if !row.Peer && row.Wrong != "" {
			all = append(all, ci.Issue{Level: ci.Error, Rule: "wrong output", Subject: row.Name, Message: row.Shape + ": " + row.Wrong})
		}
	}
	return all
}

// MutationIssues are the mutants that survived, as warnings. ptx is the path of the PTX in the
// checkout; it may be empty.
func MutationIssues(kernel string, r *mutate.Report, ptx string) []ci.Issue {
	var all []ci.Issue
	for _, m := range r.Survivors {
		i := ci.Issue{Level: ci.Warning, Rule: "surviving mutant", Subject: kernel, Key: PTXLine(m.Before) + " " + PTXLine(m.After)}
		i.Message = fmt.Sprintf("%s: no check fails if %s becomes %s", m.Kind, PTXLine(m.Before), PTXLine(m.After))
		if ptx != "" {
			i.Location = ci.Location{File: ptx, Line: m.Line}
		}
		all = append(all, i)
	}
	return all
}

// FindingRules are the rules of all kinds of findings, of the simulator's checkers, of every device
// and of the audit.
func FindingRules() []ci.Rule {
	var rules []ci.Rule
	for _, k := range slices.Concat(finding.Kinds(), finding.BufferKinds()) {
		rules = append(rules, findingRule(k))
	}
	for _, k := range finding.AllowableKinds() {
		if _, ok := findingTexts[k]; !ok {
			rules = append(rules, ci.Rule{ID: string(k), Short: "The kernel has access to state other than its arguments: " + string(k), Help: auditHelp})
		}
	}
	return rules
}

func findingRule(kind finding.Kind) ci.Rule {
	text := findingTexts[kind]
	return ci.Rule{ID: string(kind), Short: text.short, Help: text.help}
}

const auditHelp = "A kernel that can keep state between launches could return an earlier result. " +
	"Remove the instruction, or allow its kind in kernel.toml if the kernel needs it."

// findingTexts are what a kind means, and what to do.
var findingTexts = map[finding.Kind]struct{ short, help string }{
	"race": {"Two accesses that nothing orders", "Two threads access the same bytes, one of them writes, and no barrier, fence or atomic operation " +
		"orders the two. Add __syncthreads(), __syncwarp() or an mbarrier between them. It is reported even if the output is right."},
	"missing-wait": {"Asynchronous data is used before it is complete", "A copy, TMA load or wgmma may still be running. " +
		"Wait for it before the access: cp.async.wait_group, an mbarrier wait, or wgmma.wait_group."},
	"missing-fence": {"A fence between proxies is missing", "Generic accesses and those of TMA or wgmma are ordered by a proxy fence only: " +
		"fence.proxy.async, or wgmma.fence before the first wgmma."},
	"uninitialized": {"A read of bytes that were never written", "The value is undefined. Initialise the bytes, or guard the read where no thread has written."},
	"out-of-bounds": {"An access outside of any buffer or variable", "The address is outside of the argument or variable. Check the index against the extent of the buffer."},
	"misaligned": {"An address that is not aligned for its access", "A vector access, TMA or matrix operand needs an address that is a multiple of its size. " +
		"Align the buffer, or use a smaller access."},
	"divergent-barrier": {"A barrier that not all lanes execute", "Barriers and warpgroup instructions need all lanes of the warp, or all warps of the barrier. " +
		"Move it out of the branch."},
	"deadlock":      {"A wait that never ends", "No thread can arrive at the barrier or set the flag any more. Check the counts of arrivals, the phases, and early exits."},
	"bad-barrier":   {"Wrong use of a barrier", "The count, the phase or the expected bytes of the barrier do not fit its use."},
	"undefined":     {"Behaviour that PTX leaves undefined", "The result is not defined by PTX and may differ between chips and compilers."},
	"kept-memory":   {"A read of what an earlier launch has left", "The kernel reads a variable that a launch before has written. A launch must not depend on another."},
	"wrote-outside": {"A write outside of the output", "Bytes next to a buffer were changed. Check the index of the last rows and columns."},
	"input-changed": {"An input was changed", "The kernel writes to a buffer that is declared as an input. Declare it as inout, or do not write it."},
	"unwritten":     {"Parts of an output were not written", "Elements of the output still have the value from before the launch. Check the grid and the guards of the last block."},
	"not-repeatable": {"Two launches gave different outputs", "The output depends on the order of threads, or on an earlier launch. " +
		"If the order of sums is free by design, kernel.toml can allow it."},
}
