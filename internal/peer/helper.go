package peer

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"attune/internal/tensor"
)

//go:embed helper.py
var program string

// Error is the reason why a peer was not timed, and the remedy.
type Error struct {
	Why string
	Do  string // may be empty
}

func (e *Error) Error() string {
	if e.Do == "" {
		return e.Why
	}
	return e.Why + "; " + e.Do
}

// Options describe how to start a helper.
type Options struct {
	Python string        // name or path; empty for ATTUNE_PYTHON, or else python3 in PATH
	Device int           // index of the GPU
	Limit  time.Duration // of each response, including the import of PyTorch
}

// PythonVariable is the environment variable with the Python to use.
const PythonVariable = "ATTUNE_PYTHON"

const (
	maxLineBytes = 4 << 20 // of a response
	// closeGrace is the time limit for a helper to exit by itself.
	closeGrace = 5 * time.Second
)

// Helper is a Python process that runs peers. Its methods are called one at a time.
type Helper struct {
	facts   Facts
	options Options
	python  string
	// folder has the inputs and outputs. It is also the helper's working directory, so that Python
	// imports no module from the user's folder.
	folder  string
	cmd     *exec.Cmd
	printed *tail
	in      *os.File
	out     *bufio.Reader
	pipes   []io.Closer
	exited  chan struct{}
	exitErr error
	last    int // ID of the last request
	lost    bool

	inputs   *tensor.Inputs // in the folder's files
	version  int            // of these files; it counts how often they were written
	launches map[Peer]int
	shapes   map[Peer]tensor.Shape
}

// Start starts a helper and waits for its versions. Every error is an *Error, except that of a
// cancelled context.
func Start(ctx context.Context, o Options) (*Helper, error) {
	python, err := find(o.Python)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "attune-peer-")
	if err != nil {
		return nil, &Error{"make a folder for the peers' inputs: " + err.Error(), "set TMPDIR to a writable folder"}
	}
	h := &Helper{
		options: o, python: python, folder: folder, printed: &tail{}, exited: make(chan struct{}),
		launches: map[Peer]int{}, shapes: map[Peer]tensor.Shape{},
	}
	if err := h.launch(); err != nil {
		os.RemoveAll(folder)
		return nil, &Error{fmt.Sprintf("%s does not start: %v", python, err), useAnother}
	}
	r, err := h.call(ctx, request{Op: "hello"})
	if err == nil {
		if invalid := r.Facts.check(); invalid != nil {
			err = h.lose(invalid)
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

// find finds the Python to use.
func find(requested string) (string, error) {
	name, from := requested, "--python"
	if name == "" {
		name, from = os.Getenv(PythonVariable), PythonVariable
	}
	if name == "" {
		name, from = "python3", "PATH"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path) // the helper runs in another folder
	}
	if err == nil {
		return path, nil
	}
	if from == "PATH" {
		return "", &Error{"there is no python3 in PATH", "install Python 3.9 or later with PyTorch, or " + useAnother}
	}
	return "", &Error{fmt.Sprintf("there is no program %q, which %s names", name, from), useAnother}
}

// launch starts the process, with the program on standard input and the pipes as descriptors 3 and
// 4.
func (h *Helper) launch() error {
	requestsOut, requestsIn, err := os.Pipe()
	if err != nil {
		return err
	}
	responsesOut, responsesIn, err := os.Pipe()
	if err != nil {
		return errors.Join(err, requestsOut.Close(), requestsIn.Close())
	}
	h.in, h.out, h.pipes = requestsIn, bufio.NewReader(responsesOut), []io.Closer{requestsIn, responsesOut}
	h.cmd = exec.Command(h.python, "-")
	h.cmd.Dir = h.folder
	h.cmd.Stdin = strings.NewReader(program)
	h.cmd.Stdout, h.cmd.Stderr = h.printed, h.printed
	h.cmd.ExtraFiles = []*os.File{requestsOut, responsesIn}
	h.cmd.WaitDelay = time.Second
	// A process group of its own, so that kill also ends the processes that it starts.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = h.cmd.Start()
	// The parent must not keep the helper's pipe ends open, or it would not see EOF when the helper
	// dies.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		h.closePipes()
		return err
	}
	go func() {
		h.exitErr = h.cmd.Wait()
		h.killGroup() // processes that it started may still run
		close(h.exited)
	}()
	return nil
}

// Facts are the helper's versions.
func (h *Helper) Facts() Facts { return h.facts }

// Lost reports whether the helper cannot be used any more.
func (h *Helper) Lost() bool { return h.lost }

// Graph describes the CUDA graph that a sample of a peer replays.
type Graph struct {
	Launches int
	Copies   int // of the inputs; the launches rotate through them
}

// Prepare makes a peer ready for inputs. A peer that supports E4M3 gets our codes; any other gets
// the dequantised values in its number format.
func (h *Helper) Prepare(ctx context.Context, p Peer, in *tensor.Inputs, g Graph) error {
	if err := h.Missing(p); err != nil {
		return err
	}
	if err := p.CheckShape(in.Shape); err != nil {
		return err
	}
	if err := h.writeInputs(in); err != nil {
		return &Error{"write its inputs: " + err.Error(), "set TMPDIR to a folder with free space"}
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
		return &Error{why, installAdvice(p.Kind, h.python)}
	}
	return nil
}

func installAdvice(kind, python string) string {
	if kind == flash3Kind {
		return "install FlashAttention-3 for " + python
	}
	return "install a newer PyTorch: " + python + " -m pip install --upgrade torch"
}

// Output is the output of a prepared peer, in order [batch, head, row, dim].
func (h *Helper) Output(ctx context.Context, p Peer) ([]float32, error) {
	path := h.file("output")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, &Error{"remove its earlier output: " + err.Error(), ""}
	}
	r, err := h.call(ctx, request{Op: "output", Peer: p.Kind, DType: p.DType, Files: map[string]string{"output": path}})
	if err != nil {
		return nil, err
	}
	s := h.shapes[p]
	if want := []int{s.Batch, s.Heads, s.SeqQ, s.HeadDim}; !slices.Equal(r.Shape, want) {
		return nil, &Error{fmt.Sprintf("its output has the shape %v; want %v", r.Shape, want), ""}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{"it wrote no output: " + err.Error(), ""}
	}
	if want := 4 * s.Rows() * s.HeadDim; len(data) != want {
		return nil, &Error{fmt.Sprintf("its output has %d bytes; want %d", len(data), want), ""}
	}
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
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
		Op: "sample", Peer: p.Kind, DType: p.DType, Samples: samples, Rest: pace.Rest.Seconds(), Load: pace.Load.Seconds(),
	})
	if err != nil {
		return nil, err
	}
	if err := checkSeconds(r.Seconds, samples, h.launches[p], time.Since(started)); err != nil {
		return nil, &Error{err.Error(), "its times cannot be used"}
	}
	return r.Seconds, nil
}

// Energy measures the joules of one launch of a prepared peer. It is 0 if the GPU has no energy
// counter.
func (h *Helper) Energy(ctx context.Context, p Peer) (float64, error) {
	r, err := h.call(ctx, request{Op: "energy", Peer: p.Kind, DType: p.DType})
	if err != nil {
		return 0, err
	}
	if !(r.Joules >= 0) || math.IsInf(r.Joules, 1) {
		return 0, &Error{fmt.Sprintf("it returned an energy of %g J", r.Joules), ""}
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
	h.inputs = nil
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

// call sends a request and waits for the response, the time limit or the end of the context.
func (h *Helper) call(ctx context.Context, r request) (*response, error) {
	if h.lost {
		return nil, &Error{"its Python was lost to an earlier failure", ""}
	}
	h.last++
	r.ID, r.Device = h.last, h.options.Device
	line, err := json.Marshal(r)
	if err != nil {
		panic("BUG: a request is not JSON: " + err.Error())
	}
	type received struct {
		line []byte
		err  error
	}
	responses := make(chan received, 1)
	go func() {
		var got received
		if _, got.err = h.in.Write(append(line, '\n')); got.err == nil {
			got.line, got.err = readLine(h.out)
		}
		responses <- got
	}()
	limit := time.NewTimer(h.options.Limit)
	defer limit.Stop()
	select {
	case got := <-responses:
		if got.err != nil {
			return nil, h.lose(h.death(got.err))
		}
		response, err := readResponse(got.line, r.ID)
		if err != nil {
			return nil, h.lose(err)
		}
		if response.Error != "" {
			return nil, &Error{response.Error, response.Do}
		}
		return response, nil
	case <-limit.C:
		h.lost = true
		h.kill()
		return nil, &Error{
			fmt.Sprintf("%s did not respond within %s and was killed", h.python, h.options.Limit),
			"give it more time with --peer-timeout, or " + useAnother,
		}
	case <-ctx.Done():
		h.lost = true
		h.kill()
		return nil, ctx.Err()
	}
}

var errLongLine = fmt.Errorf("its response exceeds %d bytes", maxLineBytes)

// readLine reads a line of at most maxLineBytes.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLineBytes:
			return nil, errLongLine
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// death is the error of a helper whose pipe failed: how it exited, and the last line that it
// printed.
func (h *Helper) death(pipeErr error) error {
	if errors.Is(pipeErr, errLongLine) {
		return pipeErr
	}
	select {
	case <-h.exited:
	case <-time.After(closeGrace):
		return fmt.Errorf("its pipe failed: %w", pipeErr)
	}
	how := "exit status 0"
	if h.exitErr != nil {
		how = h.exitErr.Error()
	}
	if last := h.printed.lastLine(); last != "" {
		how += ": " + last
	}
	return fmt.Errorf("it exited (%s)", how)
}

// lose marks the helper as lost and kills it.
func (h *Helper) lose(why error) error {
	h.lost = true
	h.kill()
	return &Error{fmt.Sprintf("%s failed: %v", h.python, why), useAnother}
}

// kill kills the helper and the processes that it started, unless the helper has exited: its
// process ID may then belong to another process.
func (h *Helper) kill() {
	select {
	case <-h.exited:
	default:
		h.killGroup()
	}
}

func (h *Helper) killGroup() { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) }

// Close closes the helper's pipes, which makes it exit, kills it after the grace time, and removes
// its files.
func (h *Helper) Close() error {
	h.closePipes()
	select {
	case <-h.exited:
	case <-time.After(closeGrace):
		h.kill()
		<-h.exited
	}
	return os.RemoveAll(h.folder)
}

func (h *Helper) closePipes() {
	for _, p := range h.pipes {
		p.Close()
	}
}

// tail keeps the last bytes of a helper's output.
type tail struct {
	mutex sync.Mutex
	text  []byte
}

const tailBytes = 4096

func (t *tail) Write(data []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, data...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(data), nil
}

// lastLine is the last non-empty line. Python ends a traceback with the error.
func (t *tail) lastLine() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return oneLine(lines[len(lines)-1], 300)
}
