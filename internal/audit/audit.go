package audit

import (
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// PTX audits an entry function and all functions that it can reach. outputs are the indices of the
// parameters that point to buffers which the kernel must only write, or that are tensor maps of
// these.
func PTX(text []byte, entry string, outputs ...int) []finding.Finding {
	module, err := ptx.Parse(text)
	if err != nil {
		return []finding.Finding{finding.Of(finding.Unreadable, finding.Variable{Name: "PTX"}, fmt.Sprintf("the audit cannot read the PTX: %v", err))}
	}
	i := slices.IndexFunc(module.Functions, func(f *ptx.Function) bool { return f.Entry && f.Name == entry })
	if i < 0 {
		return []finding.Finding{finding.Of(finding.Unreadable, finding.Variable{Name: entry}, "the PTX has no entry function "+entry)}
	}
	a := &auditor{module: module, index: map[key]int{}, values: map[*ptx.Function][]origin{}, params: map[*ptx.Variable]*origin{}}
	reachable, _ := module.Reachable(module.Functions[i])
	for _, f := range module.Functions { // in source order, so that the findings have one order
		if reachable[f] {
			a.functions = append(a.functions, f)
			a.values[f] = make([]origin, len(f.Registers)+1)
		}
	}
	for n, p := range module.Functions[i].Params {
		a.params[p] = &origin{set: true, known: true}
		if slices.Contains(outputs, n) {
			a.params[p].variables = []*ptx.Variable{p}
		}
	}
	a.trace()
	stack := a.traceStack()
	for _, f := range a.functions {
		a.unsetRegisters(f)
		a.unsetLocal(f, stack)
		sleeping := waits(f)
		for j := range f.Code {
			a.instruction(f, &f.Code[j], sleeping)
		}
	}
	a.initialValues()
	slices.SortStableFunc(a.findings, func(x, y finding.Finding) int {
		return slices.Index(finding.AllowableKinds(), x.Kind) - slices.Index(finding.AllowableKinds(), y.Kind)
	})
	return a.findings
}

// auditor audits one entry function.
type auditor struct {
	module    *ptx.Module
	functions []*ptx.Function            // that the entry function can reach
	values    map[*ptx.Function][]origin // of registers, and of the carry flag behind them
	params    map[*ptx.Variable]*origin  // of parameters, by the variables that pass them
	local     origin                     // of all local memory
	settled   bool                       // every register has an origin
	findings  []finding.Finding
	index     map[key]int // in findings
}

// key tells findings apart. Several places of one are counted.
type key struct {
	kind finding.Kind
	what string
}

// report adds a finding about an instruction, or counts one more place of a known one.
func (a *auditor) report(kind finding.Kind, what string, in *ptx.Instruction, format string, args ...any) {
	k := key{kind, what}
	if i, known := a.index[k]; known {
		a.findings[i].Count++
		return
	}
	a.index[k] = len(a.findings)
	f := finding.Of(kind, finding.Variable{Name: what}, fmt.Sprintf(format, args...))
	if in != nil {
		f.Where = finding.PlaceOf(a.module, in)
	}
	a.findings = append(a.findings, f)
}

// instruction reports the findings of one instruction. sleeping are reads of clocks that are none.
func (a *auditor) instruction(f *ptx.Function, in *ptx.Instruction, sleeping map[*ptx.Instruction]bool) {
	for i := range in.Operands {
		if !sleeping[in] {
			a.registers(in, &in.Operands[i])
		}
	}
	switch in.Opcode {
	case "call":
		a.call(f, in)
	case "tex", "tld4", "txq", "suld", "sust", "sured", "suq":
		a.report(finding.Texture, in.Opcode, in, "the instruction %s", in)
	}
	a.addresses(f, in)
	a.decisions(f, in)
}

// registers reports the special registers of an operand, and variables that the module does not
// define.
func (a *auditor) registers(in *ptx.Instruction, o *ptx.Operand) {
	if o.Kind == ptx.SpecialOperand {
		if kind, found := register(o.Special); found {
			a.report(kind, "%"+o.Special, in, "reads %%%s", o.Special)
		}
	}
	if v := o.Symbol.Variable; v != nil && v.Extern && v.Space == ptx.Global {
		a.report(finding.ModuleMemory, v.Name, in, "uses the variable %s, which another module defines", v.Name)
	}
	for i := range o.Parts {
		a.registers(in, &o.Parts[i])
	}
}

// call reports calls of functions that have no body here, and addresses that they get.
func (a *auditor) call(f *ptx.Function, in *ptx.Instruction) {
	callee := in.Operands[1].Symbol.Function
	if callee == nil {
		if in.Callees == nil {
			a.report(finding.IndirectCall, "call", in, "calls through a register, and no .calltargets lists the functions")
			a.escapes(f, in, &in.Operands[2], "passed to an unknown function")
		}
		return
	}
	if callee.Code != nil {
		return
	}
	if kind, found := external(callee.Name); found {
		a.report(kind, callee.Name, in, "calls %s", callee.Name)
		a.escapes(f, in, &in.Operands[2], "passed to "+callee.Name)
	}
}

// initialValues reports variables whose address is part of the initial value of another: a load
// returns it.
func (a *auditor) initialValues() {
	holders := slices.Clone(a.module.Variables)
	for _, f := range a.functions {
		holders = append(holders, f.Variables...)
	}
	for _, holder := range holders {
		for _, r := range holder.Relocations {
			if v := r.Symbol.Variable; v != nil && v.Space == ptx.Global {
				a.report(finding.ModuleMemory, v.Name, nil, "the address of the variable %s is in the initial value of %s", v.Name, holder.Name)
			}
		}
	}
}

// unsetRegisters reports registers that a function reads and never sets. They may have what an
// earlier launch left in them.
func (a *auditor) unsetRegisters(f *ptx.Function) {
	set := setRegisters(f)
	for i := range f.Code {
		in := &f.Code[i]
		read := func(r int) {
			if !set[r] {
				a.report(finding.UnsetRegister, f.Name+" "+f.Registers[r].Name, in, "reads the register %s, which nothing sets", f.Registers[r].Name)
			}
		}
		for j := range in.Operands {
			in.Operands[j].EachRegister(read)
		}
		if in.Guard >= 0 {
			read(in.Guard)
		}
	}
}

// setRegisters finds the registers that an instruction or a caller may set.
func setRegisters(f *ptx.Function) []bool {
	set := make([]bool, len(f.Registers))
	mark := func(r int) { set[r] = true }
	for _, p := range f.Params {
		if p.Space == ptx.Reg {
			mark(p.Register)
		}
	}
	for i := range f.Code {
		if operands := f.Code[i].Operands; len(operands) > 0 && isResult(&operands[0]) {
			operands[0].EachRegister(mark)
		}
	}
	return set
}
