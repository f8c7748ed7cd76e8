package cases

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"attune/internal/coverage"
	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/regular"
	"attune/internal/sim"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
)

// Case is a launch with its expected result.
type Case struct {
	Name    string         `json:"name"`
	PTX     string         `json:"ptx"` // file name, in the folder of the case; or an absolute path
	Arch    string         `json:"arch"`
	Entry   string         `json:"entry"`
	Grid    extents        `json:"grid"`
	Block   extents        `json:"block"`
	Cluster extents        `json:"cluster"`
	Shared  int            `json:"shared"` // bytes of dynamic shared memory
	Args    []Argument     `json:"args"`
	Expect  Expect         `json:"expect"`
	About   string         `json:"about,omitempty"`
	HW      map[string]any `json:"hw,omitempty"`

	Strict bool `json:"-"` // strict findings that the case does not expect fail it too

	dir    string
	launch *Launch // of a direct run, in place of the files and Args
}

// Argument is a kernel argument. Exactly one field is set, besides Zero.
type Argument struct {
	Hex       *string           `json:"hex,omitempty"`     // a buffer with these bytes
	Bytes     *int              `json:"bytes,omitempty"`   // an uninitialised buffer of this size
	Scratch   *int              `json:"scratch,omitempty"` // a buffer of this size that is zero before the first launch
	U32       *uint32           `json:"u32,omitempty"`
	U64       *uint64           `json:"u64,omitempty"`
	F32       *float32          `json:"f32,omitempty"`
	TensorMap *device.TensorMap `json:"tensormap,omitempty"`

	Zero string `json:"zero,omitempty"` // beside Scratch: "launch" clears it before every launch
}

// Expect is the expected result of a case.
type Expect struct {
	Args     map[string]Buffer `json:"args"`
	Findings []finding.Kind    `json:"findings"` // at least one of these, or of Or, must be reported
	Or       []finding.Kind    `json:"or"`       // accepted in place of Findings
	Also     []finding.Kind    `json:"also"`     // may be reported in addition
}

// Buffer is the expected content of a buffer.
type Buffer struct {
	Hex string `json:"hex"`
	ULP uint32 `json:"ulp_f32"`
}

// Outcome is the result of running a case.
type Outcome struct {
	Name       string             `json:"name"`
	Pass       bool               `json:"pass"`
	Findings   []finding.Finding  `json:"findings"`
	Mismatches []string           `json:"mismatches"`
	Notes      []string           `json:"notes,omitempty"`   // what was not compared, or not bit for bit
	Error      string             `json:"error,omitempty"`   // why the case could not run
	Outputs    []Output           `json:"outputs,omitempty"` // of a direct run
	Counters   count.Counters     `json:"-"`
	Covered    *coverage.Launches `json:"-"`
	Schedules  int                `json:"-"` // that show what communicating blocks do; 1 for others

	stale *finding.Finding // a load that has missed a write: a defect if the outputs are wrong; nil for none
}

// explain adds the load that may be the cause of wrong outputs to the findings, once.
func (o *Outcome) explain() {
	if o.stale != nil {
		o.Findings, o.stale = append(o.Findings, *o.stale), nil
	}
}

// Load reads and validates a case.
func Load(file string) (*Case, error) {
	text, err := regular.Read(file, maxFile)
	if err != nil {
		return nil, err
	}
	c := &Case{dir: filepath.Dir(file)}
	if err := c.decode(text); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if c.Name == "" {
		c.Name = filepath.Base(file)
	}
	return c, nil
}

// validate reports all errors that are visible before a run.
func (c *Case) validate() error {
	var faults []string
	if c.PTX == "" {
		faults = append(faults, `the key "ptx" is missing: the name of the PTX file, in the folder of the case`)
	}
	for _, k := range slices.Concat(c.Expect.Findings, c.Expect.Or, c.Expect.Also) {
		if !slices.Contains(finding.Kinds(), k) {
			faults = append(faults, fmt.Sprintf("unknown finding %q; expected one of %q", k, finding.Kinds()))
		}
	}
	for i, a := range c.Args {
		values := 0
		for _, set := range []bool{a.Hex != nil, a.Bytes != nil, a.Scratch != nil, a.U32 != nil, a.U64 != nil, a.F32 != nil, a.TensorMap != nil} {
			if set {
				values++
			}
		}
		if values != 1 {
			faults = append(faults, fmt.Sprintf("argument %d has %d values; give exactly one of hex, bytes, scratch, u32, u64, f32, tensormap", i, values))
		}
		if a.Zero != "" && (a.Scratch == nil || a.Zero != zeroLaunch) {
			faults = append(faults, fmt.Sprintf("argument %d has \"zero\": %q; it is for scratch, and %q is its only value", i, a.Zero, zeroLaunch))
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// zeroLaunch is the value of "zero" of scratch that is cleared before every launch.
const zeroLaunch = "launch"

// extents is a size in up to three dimensions; missing dimensions are 1.
type extents [3]int

// UnmarshalJSON reads one to three integers.
func (e *extents) UnmarshalJSON(text []byte) error {
	var list []int
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("found the extents %s; expected one to three integers", text)
	}
	if len(list) < 1 || len(list) > 3 {
		return fmt.Errorf("found the extents %s; expected one to three integers", text)
	}
	*e = extents{1, 1, 1}
	copy(e[:], list)
	return nil
}

// PTXFile returns the path of the PTX.
func (c *Case) PTXFile() string {
	if filepath.IsAbs(c.PTX) {
		return c.PTX
	}
	return filepath.Join(c.dir, c.PTX)
}

// Run runs a case on the simulator. A panic in the simulator is an error of type *crash.Panic.
func (c *Case) Run(ctx context.Context, o sim.Options) (*Outcome, error) {
	text, err := c.text()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	outcome, err := c.run(ctx, text, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return outcome, nil
}

// text returns the PTX.
func (c *Case) text() ([]byte, error) {
	if c.launch != nil {
		return c.launch.PTX, nil
	}
	text, err := regular.Read(c.PTXFile(), maxFile)
	if err == nil && !filepath.IsLocal(c.PTX) && !bytes.Contains(text, []byte(".version")) {
		// The parser quotes lines, and a case of somebody else may name a private file.
		return nil, fmt.Errorf("%s is no PTX: it has no .version", c.PTX)
	}
	return text, err
}

// maxFile bounds the text of a case and of its PTX in bytes.
const maxFile = 256 << 20

func (c *Case) run(ctx context.Context, text []byte, o sim.Options) (*Outcome, error) {
	program, err := c.load(text)
	if err != nil {
		return nil, err
	}
	return c.runProgram(ctx, program, o)
}

func (c *Case) load(text []byte) (program *sim.Program, err error) {
	defer crash.Catch(&err, func() string { return "the reader of " + c.PTX })
	module, err := ptx.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.PTX, err)
	}
	program, err = sim.Load(module, c.Arch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.PTX, err)
	}
	return program, nil
}

func (c *Case) runProgram(ctx context.Context, program *sim.Program, o sim.Options) (*Outcome, error) {
	r := &launches{c: c, program: program, memory: mem.NewLimited(o.Memory), options: o}
	r.options.Instance, r.options.Residency = &r.instance, c.launch != nil
	var err error
	if r.values, r.buffers, err = c.arguments(r.memory); err != nil {
		return nil, err
	}
	outcome, err := r.launch(ctx)
	if err != nil || !r.hasState() {
		return outcome, err
	}
	if outcome.Schedules > 1 {
		outcome.Schedules = max(outcome.Schedules, sim.StatefulSchedules)
	}
	return outcome, r.repeat(ctx, outcome)
}

// arguments allocates the buffers and returns the values of all arguments.
func (c *Case) arguments(memory *mem.Memory) (values [][]byte, buffers map[int]uint64, err error) {
	if c.launch != nil {
		return c.launch.bind(memory)
	}
	buffers = map[int]uint64{}
	for i, a := range c.Args {
		var value []byte
		switch {
		case a.isBuffer():
			base, err := a.buffer(memory, i)
			if err != nil {
				return nil, nil, err
			}
			buffers[i] = base
			value = binary.LittleEndian.AppendUint64(nil, base)
		case a.TensorMap != nil:
			if value, err = encodeTensorMap(a.TensorMap, buffers); err != nil {
				return nil, nil, fmt.Errorf("argument %d: %w", i, err)
			}
		default:
			value = a.scalar()
		}
		values = append(values, value)
	}
	return values, buffers, nil
}

// encodeTensorMap encodes a tensor map of a buffer that precedes it in the arguments.
func encodeTensorMap(m *device.TensorMap, buffers map[int]uint64) ([]byte, error) {
	base, ok := buffers[m.Arg]
	if !ok {
		return nil, fmt.Errorf("tensormap.arg is %d, which is not the index of an earlier buffer", m.Arg)
	}
	t := mem.TensorMap{Map: m.Map, Address: base}
	return t.Encode()
}

func (a *Argument) buffer(memory *mem.Memory, index int) (uint64, error) {
	v := finding.Variable{Space: finding.Argument, Index: index}
	switch {
	case a.Bytes != nil:
		return memory.Alloc(v, *a.Bytes)
	case a.Scratch != nil:
		return allocScratch(memory, v, *a.Scratch, a.Zero == zeroLaunch)
	}
	data, err := parseHex(*a.Hex)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", v, err)
	}
	base, err := memory.Alloc(v, len(data))
	if err != nil {
		return 0, err
	}
	return base, memory.Write(base, data)
}

// compare compares the findings and the buffers with the expected result.
func (c *Case) compare(o *Outcome, memory *mem.Memory, buffers map[int]uint64, checked bool) error {
	if c.launch != nil {
		err := c.launch.inspect(o, memory, buffers, checked)
		o.Pass = c.expected(o.Findings)
		return err
	}
	mismatches, err := c.mismatches(func(index int, data []byte) error {
		base, ok := buffers[index]
		if !ok {
			return errNotBuffer
		}
		return memory.Read(data, base)
	})
	if err != nil {
		return err
	}
	if o.Mismatches = append(o.Mismatches, mismatches...); len(mismatches) > 0 {
		o.explain()
	}
	o.Notes = c.partlyCompared()
	o.Pass = len(o.Mismatches) == 0 && (!checked || c.expected(o.Findings))
	return nil
}

// mismatches describes the buffers that differ from the expected bytes. read fills data with the
// first bytes of the buffer of an argument.
func (c *Case) mismatches(read func(index int, data []byte) error) ([]string, error) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.Expect.Args)) {
		index, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("expect.args: %q is not the index of an argument", name)
		}
		expected := c.Expect.Args[name]
		want, err := parseHex(expected.Hex)
		got := make([]byte, len(want))
		if err == nil {
			err = read(index, got)
		}
		if err != nil {
			return nil, fmt.Errorf("expect.args: argument %d: %w", index, err)
		}
		if mismatch := expected.compare(got, want); mismatch != "" {
			list = append(list, fmt.Sprintf("argument %d: %s", index, mismatch))
		}
	}
	return list, nil
}

// partlyCompared describes the buffers that are longer than what the case expects of them.
func (c *Case) partlyCompared() []string {
	var list []string
	for i, a := range c.Args {
		size := 0
		switch {
		case a.Hex != nil:
			size = len(*a.Hex) / 2
		case a.Bytes != nil:
			size = *a.Bytes
		}
		if expected, ok := c.Expect.Args[strconv.Itoa(i)]; ok && len(expected.Hex)/2 < size {
			list = append(list, fmt.Sprintf("argument %d: only the first %d of %d bytes are compared", i, len(expected.Hex)/2, size))
		}
	}
	return list
}

// expected reports whether the findings are those that the case expects. Other strict findings are
// notes, unless c.Strict is set.
func (c *Case) expected(found []finding.Finding) bool {
	detected := len(c.Expect.Findings)+len(c.Expect.Or) == 0
	for _, f := range found {
		switch {
		case slices.Contains(c.Expect.Findings, f.Kind) || slices.Contains(c.Expect.Or, f.Kind):
			detected = true
		case f.Severity == finding.Note || f.Severity == finding.Strict && !c.Strict:
		case !slices.Contains(c.Expect.Also, f.Kind):
			return false
		}
	}
	return detected
}

// compare describes the first difference; "" if there is none.
func (b Buffer) compare(got, want []byte) string {
	if b.ULP == 0 {
		return compareBytes(got, want)
	}
	return compareFloats(got, want, b.ULP)
}

func compareBytes(got, want []byte) string {
	first, count := -1, 0
	for i := range want {
		if got[i] != want[i] {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	if first < 0 {
		return ""
	}
	word := first / 4 * 4
	end := min(word+4, len(want))
	return fmt.Sprintf("%d of %d bytes differ, the first at byte %d: got %x, want %x", count, len(want), first, got[word:end], want[word:end])
}

func compareFloats(got, want []byte, ulps uint32) string {
	for i := 0; i+4 <= len(want); i += 4 {
		g, w := binary.LittleEndian.Uint32(got[i:]), binary.LittleEndian.Uint32(want[i:])
		if g == w || isNaN(g) && isNaN(w) {
			continue
		}
		d := floatOrder(g) - floatOrder(w)
		if !isFinite(g) || !isFinite(w) || d > int64(ulps) || d < -int64(ulps) { // the largest float is next to infinity
			return fmt.Sprintf("float %d is %g (%#08x), want %g (%#08x) within %d ulps", i/4, math.Float32frombits(g), g, math.Float32frombits(w), w, ulps)
		}
	}
	return ""
}

func isFinite(bits uint32) bool { return bits&0x7f800000 != 0x7f800000 }

func isNaN(bits uint32) bool { return bits&0x7fffffff > 0x7f800000 }

// floatOrder maps float32 encodings to integers in the order of their values; -0 and +0 map to 0.
func floatOrder(bits uint32) int64 {
	if bits>>31 != 0 {
		return -int64(bits & 0x7fffffff)
	}
	return int64(bits)
}
