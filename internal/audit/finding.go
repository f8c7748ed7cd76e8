package audit

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of finding. kernel.toml allows findings by kind.
type Kind string

// The kinds. Kinds lists them in this order.
const (
	ModuleMemory    Kind = "module-memory"    // a variable of the module that the kernel may write
	Clock           Kind = "clock"            // a clock or a performance counter
	LaunchID        Kind = "launch-id"        // a value that the driver sets for each launch
	OutputRead      Kind = "output-read"      // an output, which has the result of an earlier launch
	UnsetRegister   Kind = "unset-register"   // a register that nothing sets, with what was left in it
	UnsetLocal      Kind = "unset-local"      // local memory that no path sets before
	Allocation      Kind = "allocation"       // the heap, whose contents outlive the launch
	DeviceLaunch    Kind = "device-launch"    // a launch of another grid
	ExternalCall    Kind = "external-call"    // a function that is not in the module
	IndirectCall    Kind = "indirect-call"    // a call whose possible callees are not listed
	AbsoluteAddress Kind = "absolute-address" // memory that no argument and no variable leads to
	Texture         Kind = "texture"          // textures and surfaces, which are not arguments
	Unreadable      Kind = "unreadable"       // PTX that this package cannot read
	NotRepeatable   Kind = "not-repeatable"   // outputs that differ between launches; found by launching
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{
		ModuleMemory, Clock, LaunchID, OutputRead, UnsetRegister, UnsetLocal, Allocation, DeviceLaunch, ExternalCall,
		IndirectCall, AbsoluteAddress, Texture, Unreadable, NotRepeatable,
	}
}

// Finding is one means of state in a kernel.
type Finding struct {
	Kind  Kind   `json:"kind"`
	What  string `json:"what"`            // the variable, register, function or instruction
	Where string `json:"where,omitempty"` // the first place: source line and PTX line
	Text  string `json:"text"`            // what the kernel does with it
	Count int    `json:"count"`           // places
}

// String returns the finding in one line.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s", f.Kind, f.Text)
	if f.Where != "" {
		text += " at " + f.Where
	}
	if f.Count > 1 {
		text += fmt.Sprintf(" and %d more", f.Count-1)
	}
	return text
}

// Denied returns the findings whose kinds are not allowed.
func Denied(all []Finding, allowed []Kind) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return slices.Contains(allowed, f.Kind) })
}

// Reason is a finding with the way to allow it.
func (f Finding) Reason() string {
	switch {
	case f.Kind == Unreadable:
		return fmt.Sprintf("%s; write the kernel without it, or allow = [%q] in kernel.toml", f, f.Kind)
	case f.What == "%envreg1" || f.What == "%envreg2": // the address of the barrier of a cooperative grid
		return f.String() + "; a grid barrier needs cooperative = true in [launch] of kernel.toml"
	}
	return fmt.Sprintf("%s; remove it, or write allow = [%q] in kernel.toml if the kernel needs it", f, f.Kind)
}

// register classifies special registers by name, without %.
func register(name string) (Kind, bool) {
	switch {
	case strings.HasPrefix(name, "clock"), strings.HasPrefix(name, "globaltimer"), strings.HasPrefix(name, "pm"):
		return Clock, true
	case name == "gridid", name == "current_graph_exec", strings.HasPrefix(name, "envreg"):
		return LaunchID, true
	}
	return "", false
}

// external classifies functions of the driver's library by name. printf and assert only report to
// the host.
func external(name string) (Kind, bool) {
	switch {
	case name == "vprintf", name == "__assertfail":
		return "", false
	case name == "malloc", name == "free":
		return Allocation, true
	case strings.HasPrefix(name, "cudaLaunchDevice"), strings.HasPrefix(name, "cudaGetParameterBuffer"), strings.HasPrefix(name, "__cudaCDP"):
		return DeviceLaunch, true
	}
	return ExternalCall, true
}
