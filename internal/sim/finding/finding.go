package finding

import (
	"fmt"

	"attune/internal/ptx"
)

// Kind is a kind of finding.
type Kind string

// The kinds. Kinds lists them in this order.
const (
	Race             Kind = "race"              // two accesses that nothing orders
	MissingWait      Kind = "missing-wait"      // use of asynchronous data that no thread has waited for
	MissingFence     Kind = "missing-fence"     // a fence between proxies, or before wgmma, is missing
	Uninitialized    Kind = "uninitialized"     // a read of bytes that were never written
	OutOfBounds      Kind = "out-of-bounds"     // an access outside of any buffer or variable
	Misaligned       Kind = "misaligned"        // an address that is not a multiple of the required alignment
	DivergentBarrier Kind = "divergent-barrier" // a barrier or warpgroup instruction that not all lanes execute
	Deadlock         Kind = "deadlock"          // a wait that never ends
	BadBarrier       Kind = "bad-barrier"       // wrong use of a barrier: its count, its phase, its bytes
	Undefined        Kind = "undefined"         // behaviour that PTX leaves undefined
	KeptMemory       Kind = "kept-memory"       // a read of what an earlier launch has left in a variable
)

// Kinds lists all kinds of findings.
func Kinds() []Kind {
	return []Kind{
		Race, MissingWait, MissingFence, Uninitialized, OutOfBounds, Misaligned, DivergentBarrier, Deadlock, BadBarrier, Undefined,
		KeptMemory,
	}
}

// Severity says whether a finding matters on a chip.
type Severity string

// The severities.
const (
	Error  Severity = "error"  // the kernel is wrong on hardware, or may be
	Strict Severity = "strict" // PTX does not define it, but it works on hardware
)

// Place is an instruction in PTX and in the source that it was compiled from.
type Place struct {
	PTXLine int    `json:"ptx_line"`
	PTX     string `json:"ptx"`              // the instruction
	Source  string `json:"source,omitempty"` // file:line and those of the calls, where the module has line information
	File    string `json:"file,omitempty"`   // of the line inside inlined functions, with its path
	Line    int    `json:"line,omitempty"`

	Callers []ptx.Frame `json:"callers,omitempty"` // the calls of inlined functions, from the inside outwards
}

// String returns the source line, if known, and the PTX line.
func (p Place) String() string {
	if p.PTXLine == 0 {
		return ""
	}
	return ptx.Place(p.Source, p.PTXLine)
}

// Finding is one defect. It is reported once for each pair of places, with a count.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	Where    Place    `json:"where"`
	Other    *Place   `json:"other,omitempty"` // the access that it conflicts with
	Count    int      `json:"count"`
	Detail   string   `json:"detail"` // of the first occurrence: threads, address, and what is missing
}

// String returns the finding in one line.
func (f Finding) String() string {
	other := ""
	if f.Other != nil && f.Other.PTXLine > 0 {
		other = " with " + f.Other.String()
	}
	times := fmt.Sprintf("%d times", f.Count)
	if f.Count == 1 {
		times = "once"
	}
	return fmt.Sprintf("%s at %s%s (%s): %s", f.Kind, f.Where, other, times, f.Detail)
}

// Key identifies a finding across launches: the kind and the two places in either order.
func (f Finding) Key() string {
	where, other := f.Where.String(), ""
	if f.Other != nil {
		other = f.Other.String()
		if other < where {
			where, other = other, where
		}
	}
	return string(f.Kind) + "\x00" + where + "\x00" + other
}
