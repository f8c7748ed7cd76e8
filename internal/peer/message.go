package peer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"attune/internal/array"
	"attune/internal/python"
)

// request is one line to the helper.
type request struct {
	Op     string `json:"op"` // hello, prepare, output, sample, energy, release
	Device int    `json:"device"`

	Peer  string `json:"peer,omitempty"`
	DType string `json:"dtype,omitempty"`

	Shape    []int             `json:"shape,omitempty"` // batch, heads, queries, keys, head dim
	KVHeads  int               `json:"kv_heads,omitempty"`
	Causal   bool              `json:"causal"`
	Launches int               `json:"launches,omitempty"` // in a graph
	Copies   int               `json:"copies,omitempty"`   // of the inputs
	Files    map[string]string `json:"files,omitempty"`
	Inputs   int               `json:"inputs,omitempty"` // changes with the files of the inputs

	// Of a function that computes a declared problem.
	File     string         `json:"file,omitempty"`
	Function string         `json:"function,omitempty"`
	Axes     map[string]int `json:"axes,omitempty"`
	Arrays   []arrayFile    `json:"arrays,omitempty"`
	Outputs  []arrayFile    `json:"outputs,omitempty"`

	Samples int     `json:"samples"`
	Rest    float64 `json:"rest,omitempty"` // seconds before each sample
	Load    float64 `json:"load,omitempty"` // seconds of launches before each sample
}

// arrayFile is an array in a raw file, little-endian and row-major.
type arrayFile struct {
	Name  string      `json:"name"`
	DType array.DType `json:"dtype"`
	Shape []int       `json:"shape"`
	File  string      `json:"file"`
}

// response is one line from the helper.
type response struct {
	Facts   *Facts    `json:"facts"`
	Shape   []int     `json:"shape"`
	Seconds []float64 `json:"seconds"` // per launch
	Joules  float64   `json:"joules"`  // per launch; 0 if it cannot be measured

	Outputs []arrayFile `json:"outputs"` // of a function
	// Broken is why a peer failed if it left the process in a state that no other peer can use.
	Broken string `json:"broken"`
}

// Facts are the helper's versions, and the kinds of peer that it lacks with the reasons.
type Facts struct {
	Python  string            `json:"python"`
	Torch   string            `json:"torch"`
	CUDA    string            `json:"cuda"`
	CuDNN   string            `json:"cudnn"`
	GPU     string            `json:"gpu"`
	UUID    string            `json:"uuid,omitempty"`
	Missing map[string]string `json:"missing,omitempty"`
	// Functions are the files of functions by the names of their peers. Sources fills them.
	Functions map[string]string `json:"functions,omitempty"`
}

// check rejects incomplete facts and makes every text a single printable line.
func (f *Facts) check() error {
	if f == nil {
		return errors.New("its response has no versions")
	}
	for _, text := range []*string{&f.Python, &f.Torch, &f.CUDA, &f.CuDNN, &f.GPU, &f.UUID} {
		*text = python.OneLine(*text, 80)
	}
	if f.Torch == "" || f.GPU == "" {
		return errors.New("its response names no PyTorch or no GPU")
	}
	for kind, why := range f.Missing {
		f.Missing[kind] = python.OneLine(why, 300)
	}
	return nil
}

// checkSeconds rejects impossible times: a wrong number of samples, a time that is not finite and
// positive, or a sum above the duration of the whole request.
func checkSeconds(seconds []float64, samples, launches int, elapsed time.Duration) error {
	if len(seconds) != samples {
		return fmt.Errorf("it returned %d samples; %d were requested", len(seconds), samples)
	}
	sum := 0.0
	for _, s := range seconds {
		if !(s > 0) || math.IsInf(s, 1) {
			return fmt.Errorf("it returned a time of %g s", s)
		}
		sum += s * float64(launches)
	}
	if sum > 1.05*elapsed.Seconds() {
		return fmt.Errorf("its samples add up to %.3g s, but the whole request took %.3g s", sum, elapsed.Seconds())
	}
	return nil
}
