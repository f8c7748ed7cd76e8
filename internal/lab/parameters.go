package lab

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/problem"
	"attune/internal/ptx"
	"attune/internal/toolchain"
)

// parameterText describes what a launch passes for a parameter.
func parameterText(p problem.Parameter) string {
	return fmt.Sprintf("%s (%s, %d bytes)", p.Name, p.Is, p.Bytes)
}

// maxNamed is how many parameters a message lists.
const maxNamed = 50

// checkParameters compares the parameters of a kernel with the arguments of a launch. A mismatch is
// a mistake in the source of this variant. The driver would read arguments that do not exist.
func checkParameters(p problem.Problem, b problem.Build) error {
	module, err := ptx.Parse(b.Image.PTX)
	if err != nil {
		return nil // the device reports PTX that it cannot read
	}
	record, passed := &b.Image.Record, p.Parameters(b)
	name := record.EntryName()
	mistake := func(format string, args ...any) error {
		t := toolchain.Target{Kernel: record.Kernel, Variant: record.Variant, Source: record.Source, Arch: record.Arch}
		return &toolchain.SourceError{Target: t, Problem: fmt.Sprintf(format, args...)}
	}
	i := slices.IndexFunc(module.Functions, func(f *ptx.Function) bool { return f.Entry && f.Name == name })
	if i < 0 {
		return mistake("the source has no entry function %s; declare it as extern \"C\" __global__ with the name of the kernel", name)
	}
	mismatch := parameterMismatch(module.Functions[i].Params, passed)
	if mismatch == "" {
		return nil
	}
	var names []string
	for _, one := range passed[:min(len(passed), maxNamed)] {
		names = append(names, one.Name)
	}
	if more := len(passed) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return mistake("%s; declare its parameters in this order: %s; %s", mismatch, strings.Join(names, ", "), p.ParameterHelp())
}

// parameterMismatch describes the first parameter that differs from its argument, or is empty.
func parameterMismatch(params []*ptx.Variable, passed []problem.Parameter) string {
	for i, p := range params {
		if i >= len(passed) {
			return fmt.Sprintf("parameter %d (%s, %d bytes) gets no argument; the launch passes %d", i, p.Name, p.Size(), len(passed))
		}
		a := passed[i]
		if p.Size() != a.Bytes {
			return fmt.Sprintf("parameter %d (%s) has %d bytes; the launch passes %s", i, p.Name, p.Size(), parameterText(a))
		}
		// The compiler passes the structures of shorter floats as bytes.
		if isFloat := p.Type == ptx.F32 || p.Type == ptx.F64; isFloat != (a.Float && a.Bytes >= 4) {
			return fmt.Sprintf("parameter %d (%s) is %s; the launch passes %s", i, p.Name, map[bool]string{true: "a float", false: "no float"}[isFloat], parameterText(a))
		}
	}
	if len(params) < len(passed) {
		return fmt.Sprintf("it has %d parameters; the launch passes %d, and %s has no parameter", len(params), len(passed), parameterText(passed[len(params)]))
	}
	return ""
}
