package toolchain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Target is one thing to build: a variant's source and knobs for one architecture.
type Target struct {
	Kernel  string         // its name is the name of the entry function too
	Variant string         // for people and records; the knobs decide
	Source  string         // path in the kernel's folder
	Arch    string         // such as sm_89 or sm_90a
	Knobs   map[string]int // every knob of the kernel
}

// String names the target in messages.
func (t Target) String() string { return t.Variant + " for " + t.Arch }

// defines writes the knobs as the compiler takes them, in a fixed order.
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
	Cubin  []byte // nil where there was no compiler and the image is a shipped one: the driver compiles its PTX
	Log    string // what ptxas -v printed
}

// Record says what an image is and how it was made; it is the same wherever and whenever the same build is made.
type Record struct {
	SchemaVersion int            `json:"schema_version"`
	Kernel        string         `json:"kernel"`
	Variant       string         `json:"variant"`
	Source        string         `json:"source"`
	Arch          string         `json:"arch"`
	Knobs         map[string]int `json:"knobs"`
	Flags         []string       `json:"flags"`
	Compiler      string         `json:"compiler"`
	SourceHash    string         `json:"source_sha256"`
	PTXHash       string         `json:"ptx_sha256"`
	CodeHash      string         `json:"code_hash"`
	Launch        Launch         `json:"launch"`
	Resources     Resources      `json:"resources"`
}

const recordSchema = 1

// sameBuild says whether a record answers a target that is to be made from sources with a certain hash.
func (r *Record) sameBuild(t Target, sourceHash string) bool {
	return r.Kernel == t.Kernel && r.Source == t.Source && r.Arch == t.Arch && r.SourceHash == sourceHash && maps.Equal(r.Knobs, t.Knobs)
}

// CompileError is what the compiler said to a target that it would not build.
type CompileError struct {
	Target Target
	Output string // the compiler's own lines
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%s does not compile:\n%s", e.Target, strings.TrimRight(e.Output, "\n"))
}

func encodeJSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}
