package toolchain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Target is a variant's source and knobs for one architecture.
type Target struct {
	Kernel  string
	Variant string         // for messages and records; the build depends on Knobs only
	Source  string         // path in the kernel's folder
	Arch    string         // such as sm_89 or sm_90a
	Knobs   map[string]int // every knob of the kernel

	Entry    string   // the entry function; empty for one named after the kernel
	Flags    []string // further flags of the compiler, from kernel.toml
	FlagsAt  string   // where Flags are, for messages, such as kernel.toml:3
	Include  []string // folders in which the compiler looks for includes, from kernel.toml
	Contract bool     // the source defines a launch contract (include/launch.cuh)
}

// EntryName is the name of the entry function.
func (t Target) EntryName() string { return cmp.Or(t.Entry, t.Kernel) }

// String names the target in messages.
func (t Target) String() string { return t.Variant + " for " + t.Arch }

// defines are the compiler's options for the knobs, in a fixed order.
func (t Target) defines() []string {
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(t.Knobs)) {
		flags = append(flags, fmt.Sprintf("-D%s=%d", name, t.Knobs[name]))
	}
	return flags
}

// Image is a built variant.
type Image struct {
	Record Record
	PTX    []byte
	Cubin  []byte // nil for a shipped image: the driver compiles its PTX
	Log    string // of nvcc and ptxas -v
}

// Record describes an image and its build. The same build gives the same record on every machine.
type Record struct {
	SchemaVersion int            `json:"schema_version"`
	Kernel        string         `json:"kernel"`
	Entry         string         `json:"entry,omitempty"` // empty for one named after the kernel
	Variant       string         `json:"variant"`
	Source        string         `json:"source"`
	Arch          string         `json:"arch"`
	Knobs         map[string]int `json:"knobs"`
	Flags         []string       `json:"flags"`
	Compiler      string         `json:"compiler"`
	SourceHash    string         `json:"source_sha256"`
	PTXHash       string         `json:"ptx_sha256"`
	CodeHash      string         `json:"code_hash"`
	Launch        Launch         `json:"launch,omitzero"`
	Resources     Resources      `json:"resources"`
}

// EntryName is the name of the entry function.
func (r *Record) EntryName() string { return cmp.Or(r.Entry, r.Kernel) }

const recordSchema = 1

// sameBuild reports whether the record is of the target, built from sources with the given hash.
func (r *Record) sameBuild(t Target, sourceHash string) bool {
	return r.Kernel == t.Kernel && r.Source == t.Source && r.Arch == t.Arch && r.SourceHash == sourceHash && maps.Equal(r.Knobs, t.Knobs) &&
		r.Entry == t.Entry && (t.Contract || slices.Equal(r.Flags, slices.Concat(flags(t.Arch), t.Flags)))
}

// CompileError is the error of a target that the compiler rejects.
type CompileError struct {
	Target Target
	Output string // of the compiler
}

// Quoted is the part of the message that is the compiler's. Its marks point at columns, so that it is
// printed as it is.
func (e *CompileError) Quoted() string { return strings.TrimRight(e.Output, "\n") }

func (e *CompileError) Error() string {
	text := fmt.Sprintf("%s does not compile:\n%s", e.Target, e.Quoted())
	if advice := e.Advice(); advice != "" {
		text += "\n" + advice
	}
	return text
}

func encodeJSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
