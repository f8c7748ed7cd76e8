package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"attune/internal/audit"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/spec"
)

// Audit reads the PTX of a build for what could remember a launch or tell launches apart.
func Audit(p problem.Problem, b problem.Build) []finding.Finding {
	var outputs []int
	for i, parameter := range p.Parameters(b) {
		if parameter.Output {
			outputs = append(outputs, i)
		}
	}
	all := audit.PTX(b.Image.PTX, b.Image.Record.EntryName(), outputs...)
	if p.Name() == spec.DeclaredProblem {
		for i := range all {
			nameArguments(&all[i], b.Image.Record.EntryName(), p.Parameters(b))
		}
	}
	return all
}

// nameArguments replaces the names that the compiler has given to parameters by those of kernel.toml.
func nameArguments(f *finding.Finding, entry string, parameters []problem.Parameter) {
	for i, p := range slices.Backward(parameters) { // k_param_1 begins k_param_10
		name := fmt.Sprintf("%s_param_%d", entry, i)
		f.Detail = strings.ReplaceAll(f.Detail, name, p.Name)
		if f.Variable.Name == name {
			f.Variable = finding.Variable{Name: p.Name, Space: finding.Argument, Index: i}
		}
	}
}

// auditBuild audits a build. It returns all findings, and the reasons against the build: the
// findings that neither the variant nor its problem allows.
func (l *Lab) auditBuild(b problem.Build) (all []finding.Finding, reasons []string) {
	p := l.problem()
	all = Audit(p, b)
	allowed := slices.Concat(b.Variant.Allowed(), p.Allowed())
	for i, f := range all {
		if f.Is(allowed...) {
			all[i].Severity = finding.Note
			continue
		}
		reasons = append(reasons, f.String()+"; "+f.Remedy())
	}
	return all, reasons
}

// unallowed removes the findings of a device about memory that the variant is allowed to have. A
// kernel that skips work on the same inputs is found all the same.
func unallowed(v spec.Variant, findings []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(findings, func(f finding.Finding) bool {
		needed := finding.ModuleMemory
		if f.Variable.Space == finding.Argument {
			needed = finding.KeptMemory
		}
		return f.Is(finding.KeptMemory) && slices.Contains(v.Allowed(), needed)
	})
}

// checkAudit returns a WrongError for a build with a finding that kernel.toml does not allow.
func (l *Lab) checkAudit(b problem.Build) error {
	if _, reasons := l.auditBuild(b); len(reasons) > 0 {
		return &WrongError{b.Variant.String(), reasons[0]}
	}
	return nil
}

// buildAudited builds variants as buildAll does and refuses those that fail the audit.
func (l *Lab) buildAudited(ctx context.Context, arch string, variants ...spec.Variant) (map[string]problem.Build, error) {
	builds, err := l.buildAll(ctx, arch, variants...)
	if err != nil {
		return nil, err
	}
	for _, v := range variants {
		if err := l.checkAudit(builds[v.String()]); err != nil {
			return nil, err
		}
	}
	return builds, nil
}

// audit fails the correctness gate of a variant that has a finding which kernel.toml does not
// allow, and reports whether it has none. It needs no device, and a variant that fails is not
// launched.
func (a *attempt) audit() bool {
	all, reasons := a.auditBuild(a.build)
	a.result.Audit, a.audited = all, len(reasons) == 0
	if !a.audited {
		a.gates.Correctness = gate.Correctness(reasons)
	}
	return a.audited
}
