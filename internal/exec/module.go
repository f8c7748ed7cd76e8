package exec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/crash"
	"attune/internal/ptx"
	"attune/internal/sim"
)

// module is a module that the program has loaded. Its PTX is read when the program first asks for a
// function or a variable: a library may bring hundreds of modules and use few.
type module struct {
	id       uint32
	image    []byte
	program  *sim.Program
	instance sim.Instance
	failed   error // of reading it
	read     bool
}

// function is a kernel that the program has asked for.
type function struct {
	module *module
	entry  *ptx.Function
	short  string // the name without parameters
	number int    // of launches so far
	params int    // bytes
}

// load reads the module and places its variables.
func (s *session) load(m *module) error {
	if m.read {
		return m.failed
	}
	m.read = true
	m.program, m.failed = readProgram(m.image, s.options.Arch)
	if m.failed == nil {
		m.failed = m.instance.Place(m.program, s.memory)
	}
	m.image = nil
	if m.failed != nil {
		s.mu.Lock()
		s.outcome.refuse("", m.failed.Error())
		s.sayLocked(m.failed.Error())
		s.mu.Unlock()
	}
	return m.failed
}

// maxPTX bounds the PTX of a module, in bytes. A module with many variants of a kernel has 20 MB.
const maxPTX = 64 << 20

// readProgram reads the PTX of an image. A program is returned even if the simulator refuses all of
// its kernels: a launch then says why.
func readProgram(image []byte, device string) (program *sim.Program, err error) {
	defer crash.Catch(&err, func() string { return "the reader of the PTX" })
	text, err := ptxOf(image, device)
	if err != nil {
		return nil, err
	}
	parsed, err := ptx.ParseUpTo(text, maxPTX)
	if err != nil {
		return nil, fmt.Errorf("the simulator cannot read the PTX: %w", err)
	}
	roundOldMads(parsed)
	program, err = sim.Load(parsed, device)
	if program == nil {
		return nil, fmt.Errorf("the simulator cannot run the PTX: %w", err)
	}
	return program, nil
}

// roundOldMads gives mad of floats the rounding that ptxas takes where PTX up to version 3.1 has none.
func roundOldMads(m *ptx.Module) {
	if m.Version[0] > 3 || m.Version[0] == 3 && m.Version[1] > 1 {
		return
	}
	for _, f := range m.Functions {
		for i := range f.Code {
			in := &f.Code[i]
			if in.Opcode != "mad" || len(in.Modifiers) == 0 {
				continue
			}
			float := slices.Contains([]string{"f32", "f64"}, in.Modifiers[len(in.Modifiers)-1])
			if float && !slices.Contains([]string{"rn", "rz", "rm", "rp"}, in.Modifiers[0]) {
				in.Modifiers = append([]string{"rn"}, in.Modifiers...)
			}
		}
	}
}

// loadModule notes a module and returns its number. An image without PTX fails here: the program may
// have other images, and asks for the functions of each.
func (s *session) loadModule(image []byte) (status, []byte) {
	m := &module{id: uint32(len(s.modules) + 1), image: bytes.Clone(image)}
	s.modules = append(s.modules, m)
	return success, u32s(int(m.id))
}

func (s *session) moduleOf(f *fields) *module {
	id := f.u32()
	if id == 0 || int(id) > len(s.modules) {
		return nil
	}
	return s.modules[id-1]
}

// moduleStatus is the status of a module that cannot be read.
func moduleStatus(err error) status {
	if _, ok := err.(*NoPTXError); ok {
		return noBinary
	}
	return invalidPTX
}

// Attributes of a function, by their numbers in the driver API.
const (
	functionAttributes    = 16
	functionMaxThreads    = 0
	functionStaticShared  = 1
	functionConstants     = 2
	functionLocal         = 3
	functionRegisters     = 4
	functionPTXVersion    = 5
	functionBinaryVersion = 6
	functionDynamicShared = 8
	functionClusterWidth  = 11

	// assumedRegisters is what a function reports: PTX does not say how many registers machine code has.
	assumedRegisters = 32
)

// findFunction answers with the number of a function, its parameters and its attributes.
func (s *session) findFunction(f *fields) (status, []byte) {
	m := s.moduleOf(f)
	if m == nil {
		return invalidHandle, nil
	}
	if err := s.load(m); err != nil {
		return moduleStatus(err), nil
	}
	entry, err := m.program.Entry(string(f.data))
	if err != nil || len(f.data) == 0 {
		return notFound, nil
	}
	offsets, size := m.program.Layout(entry)
	s.functions = append(s.functions, &function{module: m, entry: entry, short: shortName(entry.Name), params: size})
	reply := u32s(len(s.functions), len(offsets), size)
	reply = append(reply, u32s(s.attributes(m.program, entry)...)...)
	for i, offset := range offsets {
		reply = append(reply, u32s(offset, entry.Params[i].Size())...)
	}
	return success, reply
}

func (s *session) attributes(p *sim.Program, entry *ptx.Function) []int {
	a := make([]int, functionAttributes)
	a[functionMaxThreads] = 1024
	if t := entry.MaxThreads; t[0] > 0 {
		a[functionMaxThreads] = min(1024, t[0]*max(t[1], 1)*max(t[2], 1))
	}
	a[functionStaticShared], a[functionLocal] = p.StaticShared(entry), p.LocalBytes(entry)
	a[functionRegisters] = assumedRegisters
	major, minor := s.capability()
	a[functionPTXVersion], a[functionBinaryVersion] = 10*major+minor, 10*major+minor
	a[functionDynamicShared] = 48<<10 - a[functionStaticShared]
	for i, n := range entry.ClusterBlocks {
		a[functionClusterWidth+i] = n
	}
	return a
}

// kernelNames lists the names of the kernels of a module, each with a zero behind it.
func (s *session) kernelNames(f *fields) (status, []byte) {
	m := s.moduleOf(f)
	if m == nil {
		return invalidHandle, nil
	}
	if err := s.load(m); err != nil {
		return moduleStatus(err), nil
	}
	var names []byte
	for _, entry := range m.program.Functions() {
		names = append(append(names, entry.Name...), 0)
	}
	return success, names
}

// findVariable answers with the address and the size of a variable.
func (s *session) findVariable(f *fields) (status, []byte) {
	m := s.moduleOf(f)
	if m == nil {
		return invalidHandle, nil
	}
	if err := s.load(m); err != nil {
		return moduleStatus(err), nil
	}
	address, v := m.instance.Symbol(m.program, string(f.data))
	if v == nil {
		return notFound, nil
	}
	managed := uint64(0)
	if v.Managed {
		managed = 1
		s.kinds[address] = managedVariable
	}
	return success, u64s(address, uint64(v.Size()), managed)
}

// shortName is the name of a function without its parameters: of a mangled name, the last of its parts.
func shortName(mangled string) string {
	rest, ok := strings.CutPrefix(mangled, "_Z")
	if !ok {
		return mangled
	}
	rest = strings.TrimPrefix(rest, "N")
	name := ""
	for {
		rest = strings.TrimLeft(rest, "LKVr")
		n, digits := 0, 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' && n < 1<<16 {
			n = 10*n + int(rest[digits]-'0')
			digits++
		}
		if n == 0 || n > len(rest)-digits {
			break
		}
		name, rest = rest[digits:digits+n], rest[digits+n:]
	}
	if name == "" {
		return mangled
	}
	return name
}
