package sim

import (
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

// Instance is a loaded module in one memory. Its variables keep their values from launch to launch,
// as on a GPU. The zero value is a module whose variables have their initial values.
type Instance struct {
	placed  bool
	globals []uint64 // addresses of the variables
	next    uint64   // address after them

	constants     uint64 // address of a copy of the constants that a host may change; 0 for none
	constantBytes int
}

// Place places the module's variables before the first launch, and a copy of its constants, so that a
// host can read and change both. Their bytes count as written.
func (i *Instance) Place(p *Program, memory *mem.Memory) error {
	r := &launch{program: p, memory: memory, options: Options{Instance: i}}
	if err := r.placeVariables(); err != nil {
		return err
	}
	data, err := r.initialConstants()
	if err != nil {
		return err
	}
	if i.constantBytes = len(data); i.constantBytes > 0 {
		if i.constants, err = memory.Alloc(finding.Variable{Name: "the constants", Space: finding.Constant}, i.constantBytes); err != nil {
			return err
		}
		if err := memory.Initialise(i.constants, data); err != nil {
			return err
		}
	}
	i.next = memory.Next()
	return nil
}

// Symbol returns a variable or constant that Place has placed, and its address; nil if there is none.
func (i *Instance) Symbol(p *Program, name string) (address uint64, v *ptx.Variable) {
	for n, v := range p.globals {
		if v.Name == name {
			return i.globals[n], v
		}
	}
	for v, at := range p.constants.Variables() {
		if v.Name == name {
			return i.constants + uint64(at), v
		}
	}
	return 0, nil
}

// placeConstants fills the constant memory of a launch.
func (r *launch) placeConstants() error {
	var err error
	if i := r.options.Instance; i != nil && i.constantBytes > 0 {
		r.constants = make([]byte, i.constantBytes)
		return r.memory.Read(r.constants, i.constants)
	}
	r.constants, err = r.initialConstants()
	return err
}

// initialConstants are the constants of the module, with the addresses in them.
func (r *launch) initialConstants() ([]byte, error) {
	data := slices.Clone(r.program.constants.Data)
	for v, at := range r.program.constants.Variables() {
		write := func(offset int, bytes []byte) error {
			copy(data[at+offset:], bytes)
			return nil
		}
		if err := r.relocate(v, write); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// Functions lists the entry functions of the program.
func (p *Program) Functions() []*ptx.Function {
	var entries []*ptx.Function
	for _, f := range p.module.Functions {
		if f.Entry {
			entries = append(entries, f)
		}
	}
	return entries
}

// Layout returns where the parameters of an entry function lie, and how many bytes they take.
func (p *Program) Layout(f *ptx.Function) (offsets []int, size int) {
	c := p.codes[f]
	for _, v := range f.Params {
		offsets = append(offsets, c.entryParam[v])
	}
	return offsets, c.entrySize
}

// StaticShared returns the static shared memory that an entry function uses, in bytes.
func (p *Program) StaticShared(f *ptx.Function) int {
	_, used := p.module.Reachable(f)
	return mem.NewLayout(p.static, used).Bytes
}

// LocalBytes returns the local memory of a thread of an entry function, without that of its calls.
func (p *Program) LocalBytes(f *ptx.Function) int { return p.codes[f].localSize }

// EndLaunch makes everything that the last launch has written to the variables count as kept from
// an earlier launch. It reports whether there is any. Without checkers nothing is known, and it
// returns false.
func (i *Instance) EndLaunch(memory *mem.Memory) bool {
	written := false
	for _, base := range i.globals {
		written = memory.Keep(base) || written
	}
	return written
}

// end is the address after the variables; 0 for no instance.
func (i *Instance) end() uint64 {
	if i == nil {
		return 0
	}
	return i.next
}

// placeVariables allocates the module's variables, or takes those of the instance.
func (r *launch) placeVariables() error {
	instance := r.options.Instance
	if instance != nil && instance.placed {
		r.globals = instance.globals
		return nil
	}
	if err := r.initialiseVariables(); err != nil {
		return err
	}
	if instance == nil {
		return nil
	}
	for _, base := range r.globals {
		if !r.options.Checks {
			break
		}
		if err := r.memory.Outlive(base); err != nil {
			return err
		}
	}
	instance.placed, instance.globals, instance.next = true, r.globals, r.memory.Next()
	return nil
}
