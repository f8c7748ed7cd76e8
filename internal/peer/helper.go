package peer

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/tensor"
)

//go:embed helper.py
var program string

// Error is the reason why a peer was not timed, and the remedy.
type Error = python.Error

// Options describe how to start a helper.
type Options struct {
	Python string        // name or path; empty for ATTUNE_PYTHON, or else python3 in PATH
	Device int           // index of the GPU
	Limit  time.Duration // of each response, including the import of PyTorch
}

// PythonVariable is the environment variable with the Python to use.
const PythonVariable = python.Variable

// Helper is a Python process that runs peers. Its methods are called one at a time.
type Helper struct {
	facts   Facts
	options Options
	python  string
	// folder has the inputs and outputs. It is also the helper's working directory, so that Python
	// imports no module from the user's folder.
	folder  string
	process *python.Process

	broken   bool           // by a function; the process is of no use for other peers
	inputs   *tensor.Inputs // in the folder's files
	arrays   []*array.Array // in the folder's files, of a declared problem
	version  int            // of these files; it counts how often they were written
	launches map[Peer]int
	shapes   map[Peer]tensor.Shape   // of attention
	outputs  map[Peer][]*array.Array // of a declared problem
}

// Start starts a helper and waits for its versions. Every error is an *Error, except that of a
// cancelled context.
func Start(ctx context.Context, o Options) (*Helper, error) {
	path, err := find(o.Python)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "attune-peer-")
	if err != nil {
		return nil, &Error{Why: "make a folder for the peers' inputs: " + err.Error(), Do: "set TMPDIR to a writable folder"}
	}
	h := &Helper{
		options: o, python: path, folder: folder,
		launches: map[Peer]int{}, shapes: map[Peer]tensor.Shape{}, outputs: map[Peer][]*array.Array{},
	}
	h.process, err = python.Start(python.Options{Python: path, Program: program, Dir: folder, Limit: o.Limit})
	if err != nil {
		os.RemoveAll(folder)
		return nil, &Error{Why: reason(err), Do: useAnother}
	}
	r, err := h.call(ctx, request{Op: "hello"})
	if err == nil {
		if invalid := r.Facts.check(); invalid != nil {
			err = &Error{Why: fmt.Sprintf("%s failed: %v", path, invalid), Do: useAnother}
		}
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	h.facts = *r.Facts
	return h, nil
}

const useAnother = "name a Python that has PyTorch with --python or " + PythonVariable

// find finds the Python to use. The remedy names PyTorch, which other uses of Python do not need.
func find(requested string) (string, error) {
	path, err := python.Find(requested)
	if err == nil {
		return path, nil
	}
	do := useAnother
	if requested == "" && os.Getenv(PythonVariable) == "" {
		do = "install Python 3.9 or later with PyTorch, or " + useAnother
	}
	return "", &Error{Why: reason(err), Do: do}
}

// reason is the error of package python without its remedy.
func reason(err error) string {
	if known := (*Error)(nil); errors.As(err, &known) {
		return known.Why
	}
	return err.Error()
}

// Facts are the helper's versions.
func (h *Helper) Facts() Facts { return h.facts }

// Lost reports whether the helper cannot be used any more.
func (h *Helper) Lost() bool { return h.broken || h.process.Lost() }

// Graph describes the CUDA graph that a sample of a peer replays.
type Graph struct {
	Launches int
	Copies   int // of the inputs; the launches rotate through them
}

// Prepare makes a peer ready for the inputs of a problem.
func (h *Helper) Prepare(ctx context.Context, p Peer, data problem.PeerData, g Graph) error {
	if err := h.Missing(p); err != nil {
		return err
	}
	if p.Kind == Python {
		return h.prepareFunction(ctx, p, data, g)
	}
	return h.prepareAttention(ctx, p, data.Attention, g)
}

// prepareAttention makes an implementation of attention ready. One that supports E4M3 gets our
// codes; any other gets the dequantised values in its number format.
func (h *Helper) prepareAttention(ctx context.Context, p Peer, in *tensor.Inputs, g Graph) error {
	if err := p.CheckShape(in.Shape); err != nil {
		return err
	}
	if err := h.writeInputs(in); err != nil {
		return &Error{Why: "write its inputs: " + err.Error(), Do: "set TMPDIR to a folder with free space"}
	}
	files := map[string]string{}
	for _, name := range names {
		for _, suffix := range []string{"", codesSuffix, descaleSuffix} {
			files[name+suffix] = h.file(name + suffix)
		}
	}
	s := in.Shape
	_, err := h.call(ctx, request{
		Op: "prepare", Peer: p.Kind, DType: p.DType, Launches: g.Launches, Copies: g.Copies, Files: files, Inputs: h.version,
		Shape: []int{s.Batch, s.Heads, s.SeqQ, s.SeqK, s.HeadDim}, KVHeads: s.Heads / s.Group(), Causal: s.Causal,
	})
	if err == nil {
		h.launches[p], h.shapes[p] = g.Launches, s
	}
	return err
}

// Missing returns an error for a peer that the helper lacks.
func (h *Helper) Missing(p Peer) error {
	if why := h.facts.Missing[p.Kind]; why != "" {
		return &Error{Why: why, Do: installAdvice(p.Kind, h.python)}
	}
	return nil
}

func installAdvice(kind, python string) string {
	if kind == flash3Kind {
		return "install FlashAttention-3 for " + python
	}
	return "install a newer PyTorch: " + python + " -m pip install --upgrade torch"
}

// Output is the outputs of a prepared peer by name. Attention has "o", in order [batch, head, row,
// dim].
func (h *Helper) Output(ctx context.Context, p Peer) (map[string][]float64, error) {
	if p.Kind == Python {
		return h.functionOutputs(ctx, p)
	}
	values, err := h.attentionOutput(ctx, p)
	if err != nil {
		return nil, err
	}
	return map[string][]float64{"o": values}, nil
}

func (h *Helper) attentionOutput(ctx context.Context, p Peer) ([]float64, error) {
	path := h.file("output")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, &Error{Why: "remove its earlier output: " + err.Error()}
	}
	r, err := h.call(ctx, request{Op: "output", Peer: p.Kind, DType: p.DType, Files: map[string]string{"output": path}})
	if err != nil {
		return nil, err
	}
	s := h.shapes[p]
	if want := []int{s.Batch, s.Heads, s.SeqQ, s.HeadDim}; !slices.Equal(r.Shape, want) {
		return nil, &Error{Why: fmt.Sprintf("its output has the shape %v; want %v", r.Shape, want)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Why: "it wrote no output: " + err.Error()}
	}
	if want := 4 * s.Rows() * s.HeadDim; len(data) != want {
		return nil, &Error{Why: fmt.Sprintf("its output has %d bytes; want %d", len(data), want)}
	}
	return (&array.Array{Type: array.F32, Shape: r.Shape, Data: data}).Floats(), nil
}

// Pace is what the GPU does before each sample.
type Pace struct {
	Rest time.Duration // it idles
	Load time.Duration // then it runs the launches that are sampled, without a pause
}

// Sample warms a prepared peer up and samples it. The samples are in seconds per launch.
func (h *Helper) Sample(ctx context.Context, p Peer, samples int, pace Pace) ([]float64, error) {
	started := time.Now()
	r, err := h.call(ctx, request{
		Op: "sample", Peer: p.id(), DType: p.DType, Samples: samples, Rest: pace.Rest.Seconds(), Load: pace.Load.Seconds(),
	})
	if err != nil {
		return nil, err
	}
	if err := checkSeconds(r.Seconds, samples, h.launches[p], time.Since(started)); err != nil {
		return nil, &Error{Why: err.Error(), Do: "its times cannot be used"}
	}
	return r.Seconds, nil
}

// Energy measures the joules of one launch of a prepared peer. It is 0 if the GPU has no energy
// counter.
func (h *Helper) Energy(ctx context.Context, p Peer) (float64, error) {
	r, err := h.call(ctx, request{Op: "energy", Peer: p.id(), DType: p.DType})
	if err != nil {
		return 0, err
	}
	if !(r.Joules >= 0) || math.IsInf(r.Joules, 1) {
		return 0, &Error{Why: fmt.Sprintf("it returned an energy of %g J", r.Joules)}
	}
	return r.Joules, nil
}

// Release releases all prepared peers and their GPU memory.
func (h *Helper) Release(ctx context.Context) error {
	_, err := h.call(ctx, request{Op: "release"})
	return err
}

// Suffixes of the files of an input besides its values.
const (
	codesSuffix   = "_codes"
	descaleSuffix = "_descale"
)

func (h *Helper) file(name string) string { return filepath.Join(h.folder, name) }

// writeInputs writes the inputs to the folder: dequantised values as float32, codes, and descale
// factors. It skips inputs that are in the folder already; the mask may differ.
func (h *Helper) writeInputs(in *tensor.Inputs) error {
	same := func(a, b *tensor.Tensor) bool { return &a.Codes[0] == &b.Codes[0] }
	if h.inputs != nil && same(&h.inputs.Q, &in.Q) && same(&h.inputs.K, &in.K) && same(&h.inputs.V, &in.V) {
		return nil
	}
	h.inputs, h.arrays = nil, nil
	var writers sync.WaitGroup
	var failed [3]error
	for i, t := range []*tensor.Tensor{&in.Q, &in.K, &in.V} {
		writers.Go(func() { failed[i] = h.write(names[i], t) })
	}
	writers.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return err
	}
	h.inputs = in
	h.version++
	return nil
}

// names are the names of the inputs.
var names = [3]string{"q", "k", "v"}

// write writes the files of one input.
func (h *Helper) write(name string, t *tensor.Tensor) error {
	return errors.Join(
		os.WriteFile(h.file(name), bytesOf(t.Dequantized()), 0o600),
		os.WriteFile(h.file(name+codesSuffix), t.Codes, 0o600),
		os.WriteFile(h.file(name+descaleSuffix), bytesOf(t.Descale), 0o600),
	)
}

func bytesOf(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, x := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// call sends a request and waits for the response. The remedy for a process that it loses is another
// Python, or more time.
func (h *Helper) call(ctx context.Context, r request) (*response, error) {
	usable := !h.process.Lost()
	r.Device = h.options.Device
	var reply response
	err := h.process.Call(ctx, r, &reply)
	if reply.Broken != "" {
		h.broken = true
		return nil, &Error{Why: python.OneLine(reply.Broken, 300)}
	}
	if err == nil {
		return &reply, nil
	}
	failed := (*Error)(nil)
	if !errors.As(err, &failed) || !usable || !h.process.Lost() {
		return nil, err
	}
	do := useAnother
	if h.process.Late() {
		do = "give it more time with --peer-timeout, or " + useAnother
	}
	return nil, &Error{Why: failed.Why, Do: do}
}

// Close ends the process and removes its files.
func (h *Helper) Close() error { return errors.Join(h.process.Close(), os.RemoveAll(h.folder)) }
