package cases

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

// Launch is a launch without an expected result: a kernel that the command line names.
type Launch struct {
	Name                 string
	PTX                  []byte
	Arch                 string // empty for the target of the PTX
	Entry                string
	Grid, Block, Cluster [3]int // zeros in Cluster for none
	Shared               int    // bytes of dynamic shared memory
	Cooperative          bool
	Args                 []LaunchArg
}

// FromLaunch returns a case of a launch. It passes if the checkers find nothing, the kernel writes
// all of its outputs and changes none of its inputs.
func FromLaunch(l Launch) *Case {
	return &Case{
		Name: l.Name, PTX: l.Name, Arch: l.Arch, Entry: l.Entry, Grid: l.Grid, Block: l.Block, Cluster: l.Cluster, Shared: l.Shared,
		Expect: Expect{Args: map[string]Buffer{}}, launch: &l,
	}
}

// Resolve finds the entry function, and compares its parameters with the arguments. An empty entry
// is the only one of the module; a C++ function may be named without its parameters.
func (l *Launch) Resolve() error {
	module, err := ptx.Parse(l.PTX)
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	f, err := l.entry(module)
	if err != nil {
		return err
	}
	l.Entry = f.Name
	if len(f.Params) != len(l.Args) {
		given := fmt.Sprintf("there are %d --arg", len(l.Args))
		if len(l.Args) == 1 {
			given = "there is 1 --arg"
		}
		parameters := fmt.Sprintf("%d parameters", len(f.Params))
		if len(f.Params) == 1 {
			parameters = "1 parameter"
		}
		return fmt.Errorf("%s takes %s%s; %s%s", f.Name, parameters, parameterTypes(f), given, tensorMapHint(f.Params))
	}
	for i, p := range f.Params {
		arg := l.Args[i]
		if have := arg.parameterBytes(); have != p.Size() {
			what := "a scalar"
			if arg.Role != Scalar {
				what = "a buffer"
			}
			return fmt.Errorf("argument %d is %s, %d bytes; parameter %d of %s has %d bytes (%s)%s", i, what, have, i, f.Name, p.Size(), parameterType(p),
				tensorMapHint([]*ptx.Variable{p}))
		}
		if need := arg.mistaken(p); need != "" {
			return fmt.Errorf("argument %d is %s; parameter %d of %s is %s (%s); check the order of --arg", i, arg.kind(), i, f.Name, need, parameterType(p))
		}
	}
	return nil
}

// The kinds of parameters that the PTX tells apart.
const (
	integerKind = "an integer"
	floatKind   = "a floating-point number"
	bufferKind  = "a buffer"
)

// kind is the kind of the argument. It is empty for a number of 8 or 16 bits that is no integer, which
// a parameter has as plain bytes.
func (a LaunchArg) kind() string {
	switch {
	case a.Role != Scalar:
		return bufferKind
	case !a.Array.Type.Float():
		return integerKind
	case a.Array.Type == array.F32 || a.Array.Type == array.F64:
		return floatKind
	}
	return ""
}

// mistaken is the kind of a parameter for which the argument is another; empty if the argument may be
// right. An address and an integer have the same type, and .b32 says nothing.
func (a LaunchArg) mistaken(p *ptx.Variable) string {
	kind := a.kind()
	if p.IsArray || p.Vector > 1 || kind == "" {
		return ""
	}
	switch p.Type {
	case ptx.F32, ptx.F64:
		if kind != floatKind {
			return floatKind
		}
	case ptx.S8, ptx.S16, ptx.S32, ptx.S64, ptx.U8, ptx.U16, ptx.U32, ptx.U64:
		if kind == floatKind {
			return integerKind
		}
	}
	return ""
}

// tensorMapHint says what to do about a parameter that looks like a tensor map: 128 aligned bytes.
func tensorMapHint(params []*ptx.Variable) string {
	const mapBytes, mapAlign = 128, 64
	if !slices.ContainsFunc(params, func(p *ptx.Variable) bool { return p.Size() == mapBytes && p.Align >= mapAlign }) {
		return ""
	}
	return "; --arg has no form for a tensor map: write a case (attune help cases) or a kernel.toml with tensormap = { ... } (attune help kernels)"
}

// entry finds the entry function.
func (l *Launch) entry(module *ptx.Module) (*ptx.Function, error) {
	var found []*ptx.Function
	var names []string
	mangled := fmt.Sprintf("_Z%d%s", len(l.Entry), l.Entry)
	for _, f := range module.Functions {
		if !f.Entry {
			continue
		}
		if f.Name == l.Entry {
			return f, nil
		}
		names = append(names, f.Name)
		if l.Entry == "" || strings.HasPrefix(f.Name, mangled) {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, fmt.Errorf("%s has no entry function; declare one with __global__", l.Name)
	case l.Entry == "" || len(found) > 1:
		return nil, fmt.Errorf("%s has %d entry functions; choose one by --entry: %s", l.Name, len(names), strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%s has no entry function %q; it has %s", l.Name, l.Entry, strings.Join(names, ", "))
}

// parameterTypes lists the parameters of a function for messages.
func parameterTypes(f *ptx.Function) string {
	if len(f.Params) == 0 {
		return ""
	}
	types := make([]string, len(f.Params))
	for i, p := range f.Params {
		types[i] = parameterType(p)
	}
	return " (" + strings.Join(types, ", ") + ")"
}

// parameterType is the type of a parameter as the PTX declares it.
func parameterType(p *ptx.Variable) string {
	if p.IsArray {
		return fmt.Sprintf("%s[%d]", p.Type, p.Count)
	}
	return p.Type.String()
}

// parameterBytes is the size of the argument as a parameter: a buffer is an address.
func (a LaunchArg) parameterBytes() int {
	if a.Role == Scalar {
		return len(a.Array.Data)
	}
	return 8
}

// bytes is the size of the buffer.
func (a LaunchArg) bytes() int { return a.Array.Len() * a.Array.Type.Bytes() }

// bind allocates the buffers in the simulator's memory and returns the values of all arguments.
func (l *Launch) bind(memory *mem.Memory) (values [][]byte, buffers map[int]uint64, err error) {
	buffers = map[int]uint64{}
	for i, a := range l.Args {
		if a.Role == Scalar {
			values = append(values, a.Array.Data)
			continue
		}
		base, err := a.place(memory, i)
		if err != nil {
			return nil, nil, err
		}
		buffers[i] = base
		values = append(values, binary.LittleEndian.AppendUint64(nil, base))
	}
	return values, buffers, nil
}

// place allocates the buffer of the argument, with its contents.
func (a LaunchArg) place(memory *mem.Memory, index int) (uint64, error) {
	if a.Role == Scratch {
		return allocScratch(memory, a.variable(index), a.bytes(), a.Zero)
	}
	base, err := memory.Alloc(a.variable(index), a.bytes())
	if err == nil && a.Role != Out {
		err = memory.Write(base, a.Array.Data)
	}
	if err == nil && a.Role == In {
		err = memory.Protect(base)
	}
	return base, err
}

// variable identifies the argument at an index in findings and messages.
func (a LaunchArg) variable(index int) finding.Variable {
	return finding.Variable{Name: a.Array.Name, Space: finding.Argument, Index: index}
}

// inspect reads the outputs, and reports changed inputs and outputs that are not written.
func (l *Launch) inspect(o *Outcome, memory *mem.Memory, buffers map[int]uint64, checked bool) error {
	for i, a := range l.Args {
		if a.Role == Scalar || a.Role == Scratch {
			continue
		}
		data := make([]byte, a.bytes())
		if err := memory.Read(data, buffers[i]); err != nil {
			return err
		}
		if a.Role == In {
			known := slices.ContainsFunc(o.Findings, func(f finding.Finding) bool { return f.Is(finding.InputChanged) && f.Variable.Index == i })
			if !known && !bytes.Equal(data, a.Array.Data) {
				o.Findings = append(o.Findings, finding.Of(finding.InputChanged, a.variable(i), a.variable(i).String()+": an input was changed"))
			}
			continue
		}
		if n, first := memory.Unwritten(buffers[i]); checked && n > 0 && a.Role == Out {
			text := fmt.Sprintf("%s: %d of %d bytes never written, the first at byte %d", a.variable(i), n, len(data), first)
			o.Findings = append(o.Findings, finding.Of(finding.Unwritten, a.variable(i), text))
		}
		o.Outputs = append(o.Outputs, newOutput(i, a, data))
	}
	return nil
}

// CheckRepeat compares the outputs of a direct run under a schedule with those under the first. They
// must be equal. If the kernel adds floats by atomic operations, a difference is a note of the first.
// A difference of floats under automatic schedules is one too: there is no reference to judge it by.
func (c *Case) CheckRepeat(first, next *Outcome, schedule int, automatic bool) {
	if c.launch == nil {
		return
	}
	for i, o := range next.Outputs {
		one, other := first.Outputs[i].Array, o.Array
		if bytes.Equal(one.Data, other.Data) {
			continue
		}
		arg := c.launch.Args[o.Arg]
		text := fmt.Sprintf("%s: %s", arg.variable(o.Arg), differentElements(one, other, schedule))
		where := unorderedSum(c.launch.PTX)
		switch {
		case where != "":
			text += "; the floating-point atomics at " + where + " have no order, so this is accepted"
		case automatic && o.Array.Type.Float():
			text += fmt.Sprintf("; compare both with a reference, or require equal bits by --schedules %d", schedule+1)
		default:
			next.explain()
			next.Findings, next.Pass = append(next.Findings, finding.Of(finding.NotRepeatable, arg.variable(o.Arg), text)), false
			continue
		}
		if len(first.Notes) == 0 { // the first difference is enough
			first.Notes = append(first.Notes, text)
		}
	}
}

// differentElements describes how an output differs between the first schedule and another.
func differentElements(one, other *array.Array, schedule int) string {
	size, first, count := one.Type.Bytes(), -1, 0
	for i := range one.Len() {
		if bytes.Equal(one.Data[i*size:][:size], other.Data[i*size:][:size]) {
			continue
		}
		if first < 0 {
			first = i
		}
		count++
	}
	before, after := elementText(one, first, one.Floats()[first]), elementText(other, first, other.Floats()[first])
	return fmt.Sprintf("%d of %d elements differ between schedule 0 and schedule %d, the first at %d (%s and %s)",
		count, one.Len(), schedule, first, before, after)
}

// job is the launch as a job of any device.
func (l *Launch) job() device.Job {
	job := device.Job{
		Image: l.PTX, Entry: l.Entry, Grid: l.Grid, Block: l.Block, Cluster: l.Cluster,
		DynamicSharedBytes: l.Shared, Cooperative: l.Cooperative, Unordered: unorderedSum(l.PTX) != "",
	}
	for _, a := range l.Args {
		switch a.Role {
		case Scalar:
			job.Args = append(job.Args, device.Arg{Scalar: a.Array.Data})
		case In:
			job.Args = append(job.Args, device.In(a.Array.Data))
		case InOut:
			job.Args = append(job.Args, device.Arg{InOut: a.Array.Data})
		case Scratch:
			job.Args = append(job.Args, device.Arg{Scratch: a.bytes(), Zero: a.Zero})
		default:
			job.Args = append(job.Args, device.Out(a.bytes()))
		}
	}
	return job
}

// unorderedSum is the place of the first atomic addition of floating-point numbers; empty without one.
func unorderedSum(text []byte) string {
	module, err := ptx.Parse(text)
	if err != nil {
		return ""
	}
	return module.FirstUnorderedSum()
}

// errNoLaunch is returned for a case from a file.
var errNoLaunch = errors.New("the case is no direct launch")

// DeviceOutcome is the outcome of the case's job on a device. Findings of a device have no place.
func (c *Case) DeviceOutcome(o *device.Outcome) (*Outcome, error) {
	if c.launch == nil {
		return nil, errNoLaunch
	}
	outcome := &Outcome{Name: c.Name, Pass: len(o.Findings) == 0, Findings: append([]finding.Finding{}, o.Findings...), Mismatches: []string{}}
	next := 0
	for i, a := range c.launch.Args {
		if a.Role == Out || a.Role == InOut {
			outcome.Outputs = append(outcome.Outputs, newOutput(i, a, o.Outputs[next]))
			next++
		}
	}
	return outcome, nil
}

// Output is a buffer after a launch.
type Output struct {
	Arg       int      `json:"arg"`
	Name      string   `json:"name,omitempty"`
	Type      string   `json:"type"`
	Shape     []int    `json:"shape"`
	Min       *float64 `json:"min"` // of the finite elements; null if there is none
	Max       *float64 `json:"max"`
	NonFinite int      `json:"non_finite"`
	First     []string `json:"first"` // elements

	Array *array.Array `json:"-"`
}

// firstElements is the number of elements that an Output shows.
const firstElements = 6
