package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"attune/internal/coverage"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// Program is a PTX module that can be run.
type Program struct {
	module *ptx.Module
	arch   string
	codes  map[*ptx.Function]*code
	ops    []position // by the number of the operation; number 0 is no operation

	static      []*ptx.Variable // static shared variables
	staticBytes int             // of them, as a compiler lays them out
	constants   mem.Constants
	globals     []*ptx.Variable

	lines       int // number of source lines so far
	lineNumbers map[string]int

	sourceOnce sync.Once
	sourceCode *coverage.Code
}

// Load prepares a module for an architecture, such as sm_89. With an empty arch it uses the
// module's own. If no entry function can run, the error names the first unsupported instruction. If
// some entry functions can run, Run returns the error for the others.
func Load(module *ptx.Module, arch string) (*Program, error) {
	if arch == "" {
		arch = module.Target
	}
	if err := checkTarget(module.Target, arch); err != nil {
		return nil, err
	}
	if _, err := mma.ChipOf(arch); errors.Is(err, mma.ErrNotSimulated) {
		return nil, &UnsupportedError{Text: ".target " + arch, Why: err.Error()}
	}
	p := &Program{module: module, arch: arch, codes: map[*ptx.Function]*code{}, lineNumbers: map[string]int{}}
	p.ops = append(p.ops, position{})
	for _, v := range module.Variables {
		if err := p.placeVariable(v); err != nil {
			return nil, err
		}
	}
	for i, f := range module.Functions {
		c := &code{program: p, fn: f, number: i}
		p.codes[f] = c
		for _, v := range f.Variables {
			if v.Space == ptx.Local || v.Space == ptx.Param {
				continue
			}
			if err := p.placeVariable(v); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range module.Functions {
		p.codes[f].refused = p.codes[f].lower()
	}
	return p, p.refusal()
}

// checkTarget returns an error if a chip cannot run PTX for a target: one of a later chip, or one
// with the features of another chip alone (sm_90a). Names without a number are not compared.
func checkTarget(target, arch string) error {
	of := func(name string) (number int, suffix string) {
		_, version, _ := strings.Cut(name, "_")
		digits := strings.TrimRight(version, "abcdefghijklmnopqrstuvwxyz")
		number, err := strconv.Atoi(digits)
		if err != nil {
			return 0, ""
		}
		return number, version[len(digits):]
	}
	needs, suffix := of(target)
	has, _ := of(arch)
	switch {
	case needs == 0 || has == 0 || needs == has:
	case needs > has:
		return fmt.Errorf(".target %s cannot run on %s: a chip does not run PTX for a later one; choose %s, or compile for %s", target, arch, target, arch)
	case suffix == "a":
		return fmt.Errorf(".target %s cannot run on %s: it has the features of one chip alone; choose %s, or compile for %s", target, arch, target, arch)
	}
	return nil
}

// refusal returns why no entry function can run; nil if one can, or if there is none.
func (p *Program) refusal() error {
	var first error
	for _, f := range p.module.Functions {
		if !f.Entry {
			continue
		}
		err := p.refused(f)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// refused returns why an entry function cannot run: an unsupported instruction in it, or in a
// function that it may call.
func (p *Program) refused(entry *ptx.Function) error {
	reachable, _ := p.module.Reachable(entry)
	for _, f := range p.module.Functions {
		if err := p.codes[f].refused; reachable[f] && err != nil {
			return err
		}
	}
	return nil
}

// Limits of a module and of a function, in bytes. The chips and their compiler have the same.
const (
	maxConstants = 64 << 10
	maxLocal     = 512 << 10
	maxParams    = 32 << 10
	maxAlign     = 4 << 10 // of a constant, a local variable or a parameter

	maxCallParams = 1 << 20 // of all calls that a function makes
)

// placeVariable places a variable of the module, or one that a function declares outside of its
// frame.
func (p *Program) placeVariable(v *ptx.Variable) error {
	refused := func(why string) error {
		return &UnsupportedError{Line: v.Line, Text: "the variable " + v.Name, Why: why}
	}
	switch v.Space {
	case ptx.Shared:
		if !mem.IsDynamic(v) {
			p.static = append(p.static, v)
			p.staticBytes = mem.AlignUp(p.staticBytes, v.Align) + v.Size()
		}
	case ptx.Const:
		if v.Extern {
			return refused("it is declared and not defined")
		}
		if v.Align > maxAlign {
			return refused(fmt.Sprintf("an alignment of %d bytes; %d are allowed", v.Align, maxAlign))
		}
		if n := p.constants.Bytes() + v.Size(); n > maxConstants {
			return refused(fmt.Sprintf("with it there are %d bytes of constants; %d are allowed", n, maxConstants))
		}
		p.constants.Add(v)
	case ptx.Global:
		if v.Extern {
			return refused("it is declared and not defined")
		}
		p.globals = append(p.globals, v)
	default:
		return refused("a variable of space ." + v.Space.String() + " is not allowed outside of a function")
	}
	return nil
}

// SharedBytes returns the static shared memory of a block.
func (p *Program) SharedBytes() int { return p.staticBytes }

// Entry returns the entry function with a name. With an empty name it returns the only one.
func (p *Program) Entry(name string) (*ptx.Function, error) {
	var entries []string
	var only *ptx.Function
	for _, f := range p.module.Functions {
		if !f.Entry {
			continue
		}
		if f.Name == name {
			return f, nil
		}
		entries = append(entries, f.Name)
		only = f
	}
	if name == "" && len(entries) == 1 {
		return only, nil
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the PTX has no entry function")
	}
	return nil, fmt.Errorf("the PTX has no entry function %q; it has %s", name, strings.Join(entries, ", "))
}

// Params lays out values as the parameters of an entry function. Each has the alignment of its
// declaration, as the driver expects it.
func (p *Program) Params(entry string, values [][]byte) ([]byte, error) {
	f, err := p.Entry(entry)
	if err != nil {
		return nil, err
	}
	if len(values) != len(f.Params) {
		return nil, fmt.Errorf("launch %s: %d arguments; the kernel takes %d parameters", f.Name, len(values), len(f.Params))
	}
	c := p.codes[f]
	params := make([]byte, c.entrySize)
	for i, v := range f.Params {
		if len(values[i]) != v.Size() {
			return nil, fmt.Errorf("launch %s: argument %d has %d bytes; the parameter %s has %d", f.Name, i, len(values[i]), v.Name, v.Size())
		}
		copy(params[c.entryParam[v]:], values[i])
	}
	return params, nil
}

// WriteSame reports whether two operations that write the same value do so on purpose. They are the
// same operation, or in the same source line, which the compiler has unrolled. Or both store a
// constant, as when a flag is set in several places.
func (p *Program) WriteSame(a, b int32) bool {
	if a == b {
		return true
	}
	one, other := p.ops[a], p.ops[b]
	return one.line() == other.line() || one.op().storesConstant() && other.op().storesConstant()
}

// UnsupportedError names an instruction or an architecture that the simulator cannot run.
type UnsupportedError struct {
	Line int    // of the instruction; 0 for an architecture
	Text string // the instruction
	Why  string
}

func (e *UnsupportedError) Error() string {
	if e.Line == 0 {
		return e.Why
	}
	return fmt.Sprintf("PTX line %d: %s: %s", e.Line, e.Text, e.Why)
}

// Family is the first word of the instruction, such as tcgen05; empty for what is no instruction.
func (e *UnsupportedError) Family() string {
	text := e.Text
	if guarded := strings.HasPrefix(text, "@"); guarded {
		_, text, _ = strings.Cut(text, " ")
	}
	opcode, _, _ := strings.Cut(text, " ")
	family, _, dotted := strings.Cut(strings.TrimSuffix(opcode, ";"), ".")
	if !dotted {
		return ""
	}
	return family
}
