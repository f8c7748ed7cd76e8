package sim

// Instance is a loaded module in one memory. Its variables keep their values from launch to launch,
// as on a GPU. The zero value is a module whose variables have their initial values.
type Instance struct {
	placed  bool
	globals []uint64 // addresses of the variables
}

// ownsGlobals reports whether the variables of the launch end with it.
func (r *launch) ownsGlobals() bool { return r.options.Instance == nil }

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
	if instance != nil {
		instance.placed, instance.globals = true, r.globals
	}
	return nil
}
