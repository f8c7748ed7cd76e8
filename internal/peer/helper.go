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

// Error is why a peer was not timed, and what to do about it.
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

// Options say how a helper is started.
type Options struct {
	Python string        // a program or its path; empty for ATTUNE_PYTHON, else python3 in PATH
	Device int           // number of the GPU
	Limit  time.Duration // for each answer, the import of PyTorch included
}

// PythonVariable is the environment variable that names the Python to use.
const PythonVariable = "ATTUNE_PYTHON"

const (
	// longestLine bounds what a helper may answer in one line.
	longestLine = 4 << 20
	// closeGrace is how long a helper may take to end of itself.
	closeGrace = 5 * time.Second
)

// Helper is a Python process that runs peers. Its methods are called one at a time.
type Helper struct {
	facts   Facts
	options Options
	python  string
	folder  string // for inputs and answers; the helper works in it as well, so that nothing in the user's folder is imported
	cmd     *exec.Cmd
	said    *tail
	in      *os.File
	out     *bufio.Reader
	pipes   []io.Closer
	exited  chan struct{}
	exitErr error
	last    int // number of the last request
	lost    bool

	given    *tensor.Inputs // whose files lie in the folder
	gifts    int            // how often files were written
	launches map[Peer]int
	shapes   map[Peer]tensor.Shape
}

// Start starts a helper and waits for its versions. Every error but the caller's own end is an *Error.
func Start(ctx context.Context, o Options) (*Helper, error) {
	python, err := find(o.Python)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "attune-peer-")
	if err != nil {
		return nil, &Error{"no folder for the peers' inputs could be made: " + err.Error(), "set TMPDIR to one that can be written"}
	}
	h := &Helper{
		options: o, python: python, folder: folder, said: &tail{}, exited: make(chan struct{}),
		launches: map[Peer]int{}, shapes: map[Peer]tensor.Shape{},
	}
	if err := h.launch(); err != nil {
		os.RemoveAll(folder)
		return nil, &Error{fmt.Sprintf("%s does not start: %v", python, err), useAnother}
	}
	r, err := h.ask(ctx, request{Op: "hello"})
	if err == nil {
		if wrong := r.Facts.check(); wrong != nil {
			err = h.lose(wrong)
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

// find looks for the Python to use.
func find(asked string) (string, error) {
	name, from := asked, "--python"
	if name == "" {
		name, from = os.Getenv(PythonVariable), PythonVariable
	}
	if name == "" {
		name, from = "python3", "PATH"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path) // the helper works in another folder
	}
	if err == nil {
		return path, nil
	}
	if from == "PATH" {
		return "", &Error{"there is no python3 in PATH", "install Python 3.9 or later with PyTorch, or " + useAnother}
	}
	return "", &Error{fmt.Sprintf("there is no program %q, which %s names", name, from), useAnother}
}

// launch starts the process with its program on standard input and the two pipes behind standard error.
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
	h.cmd.Stdout, h.cmd.Stderr = h.said, h.said
	h.cmd.ExtraFiles = []*os.File{requestsOut, responsesIn}
	h.cmd.WaitDelay = time.Second
	// A group of its own, so that what it starts dies with it.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = h.cmd.Start()
	// The helper's ends are the helper's alone: a copy here would keep its death from being seen.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		h.closePipes()
		return err
	}
	go func() {
		h.exitErr = h.cmd.Wait()
		h.killGroup() // what it may have left behind
		close(h.exited)
	}()
	return nil
}

// Facts are what the helper says of itself.
func (h *Helper) Facts() Facts { return h.facts }

// Lost says that the helper is of no further use.
func (h *Helper) Lost() bool { return h.lost }

// Graph is what a sample of a peer replays.
type Graph struct {
	Launches int
	Copies   int // of the inputs, which the launches take in turns
}

// Prepare makes a peer ready for inputs: with what our own are worth, in its number format, or with the very codes where it takes E4M3.
func (h *Helper) Prepare(ctx context.Context, p Peer, in *tensor.Inputs, g Graph) error {
	if err := h.Missing(p); err != nil {
		return err
	}
	if err := p.Refuse(in.Shape); err != nil {
		return err
	}
	if err := h.give(in); err != nil {
		return &Error{"its inputs cannot be written: " + err.Error(), "set TMPDIR to a folder with room"}
	}
	files := map[string]string{}
	for _, name := range names {
		for _, suffix := range []string{"", codesSuffix, descaleSuffix} {
			files[name+suffix] = h.file(name + suffix)
		}
	}
	s := in.Shape
	_, err := h.ask(ctx, request{
		Op: "prepare", Peer: p.Kind, DType: p.DType, Launches: g.Launches, Copies: g.Copies, Files: files, Inputs: h.gifts,
		Shape: []int{s.Batch, s.Heads, s.SeqQ, s.SeqK, s.HeadDim}, KVHeads: s.Heads / s.Group(), Causal: s.Causal,
	})
	if err == nil {
		h.launches[p], h.shapes[p] = g.Launches, s
	}
	return err
}

// Missing is the error of a peer that the helper has not, and nil for one that it has.
func (h *Helper) Missing(p Peer) error {
	if why := h.facts.Missing[p.Kind]; why != "" {
		return &Error{why, toInstall(p.Kind, h.python)}
	}
	return nil
}

func toInstall(kind, python string) string {
	if kind == flash3Kind {
		return "install FlashAttention-3 for " + python
	}
	return "install a newer PyTorch: " + python + " -m pip install --upgrade torch"
}

// Answer is what a prepared peer makes of its inputs: [batch, head, row, dim].
func (h *Helper) Answer(ctx context.Context, p Peer) ([]float32, error) {
	path := h.file("output")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, &Error{"its answer's place cannot be cleared: " + err.Error(), ""}
	}
	r, err := h.ask(ctx, request{Op: "answer", Peer: p.Kind, DType: p.DType, Files: map[string]string{"output": path}})
	if err != nil {
		return nil, err
	}
	s := h.shapes[p]
	if want := []int{s.Batch, s.Heads, s.SeqQ, s.HeadDim}; !slices.Equal(r.Shape, want) {
		return nil, &Error{fmt.Sprintf("its answer has the shape %v; want %v", r.Shape, want), ""}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{"it left no answer: " + err.Error(), ""}
	}
	if want := 4 * s.Rows() * s.HeadDim; len(data) != want {
		return nil, &Error{fmt.Sprintf("its answer has %d bytes; want %d", len(data), want), ""}
	}
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}

// Sample warms a prepared peer up and takes samples, each after a rest: seconds a launch.
func (h *Helper) Sample(ctx context.Context, p Peer, samples int, rest time.Duration) ([]float64, error) {
	started := time.Now()
	r, err := h.ask(ctx, request{Op: "sample", Peer: p.Kind, DType: p.DType, Samples: samples, Rest: rest.Seconds()})
	if err != nil {
		return nil, err
	}
	if err := checkSeconds(r.Seconds, samples, h.launches[p], time.Since(started)); err != nil {
		return nil, &Error{err.Error(), "its times cannot be used"}
	}
	return r.Seconds, nil
}

// Forget lets go of all that was prepared.
func (h *Helper) Forget(ctx context.Context) error {
	_, err := h.ask(ctx, request{Op: "forget"})
	return err
}

// Files of an input beside its values.
const (
	codesSuffix   = "_codes"
	descaleSuffix = "_descale"
)

func (h *Helper) file(name string) string { return filepath.Join(h.folder, name) }

// give writes inputs into the folder: what they are worth as float32, the codes, and the descale factors. With another mask they are the same inputs.
func (h *Helper) give(in *tensor.Inputs) error {
	same := func(a, b *tensor.Tensor) bool { return &a.Codes[0] == &b.Codes[0] }
	if h.given != nil && same(&h.given.Q, &in.Q) && same(&h.given.K, &in.K) && same(&h.given.V, &in.V) {
		return nil
	}
	h.given = nil
	var writers sync.WaitGroup
	var failed [3]error
	for i, t := range []*tensor.Tensor{&in.Q, &in.K, &in.V} {
		writers.Go(func() { failed[i] = h.write(names[i], t) })
	}
	writers.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return err
	}
	h.given = in
	h.gifts++
	return nil
}

// names are those of the inputs.
var names = [3]string{"q", "k", "v"}

// write writes the files of one input.
func (h *Helper) write(name string, t *tensor.Tensor) error {
	return errors.Join(
		os.WriteFile(h.file(name), bytesOf(t.Worth()), 0o600),
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

// ask sends a request and waits for its answer, for the end of the time or for the caller's own end.
func (h *Helper) ask(ctx context.Context, r request) (*response, error) {
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
	answers := make(chan received, 1)
	go func() {
		var got received
		if _, got.err = h.in.Write(append(line, '\n')); got.err == nil {
			got.line, got.err = readLine(h.out)
		}
		answers <- got
	}()
	limit := time.NewTimer(h.options.Limit)
	defer limit.Stop()
	select {
	case got := <-answers:
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
			fmt.Sprintf("%s gave no answer in %s and was ended", h.python, h.options.Limit), "give it more time with --peer-timeout, or " + useAnother,
		}
	case <-ctx.Done():
		h.lost = true
		h.kill()
		return nil, ctx.Err()
	}
}

var errLongLine = errors.New("it answered more than a line can hold")

// readLine reads up to a newline, and no more than a line may have.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > longestLine:
			return nil, errLongLine
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// death says how the helper ended, once its pipe is closed.
func (h *Helper) death(pipeErr error) error {
	if errors.Is(pipeErr, errLongLine) {
		return pipeErr
	}
	select {
	case <-h.exited:
	case <-time.After(closeGrace):
		return fmt.Errorf("it cannot be talked to: %w", pipeErr)
	}
	how := "without a word"
	if h.exitErr != nil {
		how = h.exitErr.Error()
	}
	if last := h.said.lastLine(); last != "" {
		how += ": " + last
	}
	return fmt.Errorf("it ended (%s)", how)
}

// lose marks the helper as of no further use and ends it.
func (h *Helper) lose(why error) error {
	h.lost = true
	h.kill()
	return &Error{fmt.Sprintf("%s is of no use: %v", h.python, why), useAnother}
}

// kill ends the helper and all that it has started, unless it is gone: its number may be another's then.
func (h *Helper) kill() {
	select {
	case <-h.exited:
	default:
		h.killGroup()
	}
}

func (h *Helper) killGroup() { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) }

// Close ends the helper, by force where it does not end of itself, with all that it has started, and removes its files.
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

// tail keeps the end of what a helper prints.
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

// lastLine is the last line with anything on it: Python's own end of a traceback.
func (t *tail) lastLine() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return oneLine(lines[len(lines)-1], 300)
}
