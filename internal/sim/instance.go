package sim

import "attune/internal/sim/mem"

// Instance is a loaded module in one memory. Its variables keep their values from launch to launch,
// as on a GPU. The zero value is a module whose variables have their initial values.
type Instance struct {
	placed  bool
	globals []uint64 // addresses of the variables
	next    uint64   // address after them
}

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
