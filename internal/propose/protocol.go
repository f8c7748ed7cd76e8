package propose

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"attune/internal/child"
	"attune/internal/profile"
)

// Protocol is the version of the messages.
const Protocol = 1

// hello is the first message. It describes what is searched.
type hello struct {
	Type      string   `json:"type"`
	Protocol  int      `json:"protocol"`
	Kernel    string   `json:"kernel"`
	Variant   string   `json:"variant"` // the default
	Objective string   `json:"objective"`
	Shapes    []string `json:"shapes"`
	Limits    Limits   `json:"limits"`
	Space     space    `json:"space"`
	Sources   []source `json:"sources"`
}

// Limits are those of the answers of a program.
type Limits struct {
	Seconds    float64 `json:"seconds"`     // of an answer
	LineBytes  int     `json:"line_bytes"`  // of an answer
	Variants   int     `json:"variants"`    // in an answer
	Patches    int     `json:"patches"`     // in an answer
	PatchBytes int     `json:"patch_bytes"` // of a diff
}

// DefaultLimits are the limits of a search that sets none. A minute is enough for a language model.
var DefaultLimits = Limits{Seconds: 60, LineBytes: 4 << 20, Variants: 16, Patches: 4, PatchBytes: 64 << 10}

type space struct {
	Knobs       []knob       `json:"knobs"`
	Constraints []constraint `json:"constraints"`
}

type knob struct {
	Name    string `json:"name"`
	Layer   string `json:"layer"`
	Values  []int  `json:"values"`
	Default int    `json:"default"`
	About   string `json:"about,omitempty"`
}

type constraint struct {
	Rule string `json:"rule"`
	Why  string `json:"why,omitempty"`
}

type source struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// State is what the search knows before an answer.
type State struct {
	Evaluations int               `json:"evaluations"`
	Default     *Score            `json:"default,omitempty"` // nil if it has no result
	Best        *Score            `json:"best,omitempty"`
	Elites      []Score           `json:"elites"`
	Insights    []profile.Insight `json:"insights"`
}

// Score is a variant with its result: a time, or another cost.
type Score struct {
	Variant string         `json:"variant"`
	Knobs   map[string]int `json:"knobs"`           // all of them
	Patch   int            `json:"patch,omitempty"` // number of the patch, 0 for the sources as they are
	P50US   float64        `json:"p50_us,omitempty"`
	Cost    float64        `json:"cost,omitempty"`
	Origin  string         `json:"origin,omitempty"`
}

// Result is what became of a proposal.
type Result struct {
	Proposal int    `json:"proposal"` // its number
	Variant  string `json:"variant,omitempty"`
	Patch    int    `json:"patch,omitempty"`
	// Stage is the one that ended it: refused, skipped, build, resources, correctness or timing; or
	// measured.
	Stage  string  `json:"stage"`
	Reason string  `json:"reason,omitempty"`
	P50US  float64 `json:"p50_us,omitempty"`
	Cost   float64 `json:"cost,omitempty"`
	Best   bool    `json:"new_best,omitempty"` // it is the best so far
}

// refusedStage is the stage of a proposal that was not built.
const refusedStage = "refused"

// stateMessage is a state with what the program has not been told yet.
type stateMessage struct {
	Type  string `json:"type"`
	Round int    `json:"round"`
	State
	Last []Result `json:"last"`
}

// answer is a message of the program. Proposals are decoded one by one, so that a wrong one does not
// cost the others.
type answer struct {
	Type     string            `json:"type"`
	Round    *int              `json:"round"`
	Variants []json.RawMessage `json:"variants"`
	Patches  []json.RawMessage `json:"patches"`
}

// variantProposal is a variant: by its name, or by the knobs that differ from the default.
type variantProposal struct {
	Variant string         `json:"variant"`
	Knobs   map[string]int `json:"knobs"`
	Patch   int            `json:"patch"` // of an earlier patch
	About   string         `json:"about"`
}

// patchProposal is a change of the sources.
type patchProposal struct {
	Diff    string         `json:"diff"`
	Variant string         `json:"variant"`
	Knobs   map[string]int `json:"knobs"`
	Parent  int            `json:"parent"` // the patch that it improves, for the record
	About   string         `json:"about"`
}

// decodeAnswer reads a line of the program.
func decodeAnswer(line []byte) (answer, error) {
	var a answer
	if err := decode(line, &a); err != nil {
		return a, fmt.Errorf("answered %q, %w", child.OneLine(string(line), 60), err)
	}
	switch a.Type {
	case "proposals", "done":
		return a, nil
	case "":
		return a, fmt.Errorf(`answered %q, which has no "type"`, child.OneLine(string(line), 60))
	}
	return a, fmt.Errorf(`answered the type %q; there are "proposals" and "done"`, child.OneLine(a.Type, 40))
}

// decode reads a JSON value. The error says what is wrong with it, without Go's names.
func decode(text []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(value)
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		place := cmp.Or(wrong.Field, "it")
		return fmt.Errorf("where %s has %s in place of %s", child.OneLine(place, 60), kindOfJSON(wrong.Value), kindOfGo(wrong.Type.Kind()))
	}
	if err != nil {
		return errors.New("which is not JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("which is more than one JSON value")
	}
	return nil
}

// kindOfJSON names what a message has, from encoding/json's description.
func kindOfJSON(value string) string {
	switch kind, number, _ := strings.Cut(value, " "); kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "number":
		return strings.TrimSpace("a number " + child.OneLine(number, 40))
	default:
		return "a " + kind
	}
}

// kindOfGo names what a message should have.
func kindOfGo(kind reflect.Kind) string {
	switch kind {
	case reflect.Int:
		return "an integer"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// encode is the line of a message.
func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("BUG: a message is no JSON: %v", err))
	}
	return append(line, '\n')
}
