package declared

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	slashpath "path"
	"path/filepath"
	"slices"

	"attune/internal/array"
	"attune/internal/child"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/regular"
	"attune/internal/spec"
)

//go:embed reference.py
var program string

// interpreter is the Python process of a command. A lost one is replaced once.
type interpreter struct {
	process *python.Process
	folder  string // temporary, with the arrays
	memory  int64  // its limit in bytes, without that for arrays
	losses  int
	failed  error // of the start, or of the second loss
}

// maxLosses is how many processes may be lost. A function that hangs on every instance must not
// cost the time limit for each.
const maxLosses = 2

// MemoryVariable sets the limit of memory. Without it a reference may take child.DefaultMemory and a
// multiple of the bytes of its arrays. In float64 the attention of this repository, which keeps all
// scores, takes 100 times its arrays at 4096 keys.
const (
	MemoryVariable = "ATTUNE_REFERENCE_MEMORY"
	memoryPerByte  = 512
)

// memoryFor is the limit for arrays, in addition to a base. A quarter of the machine is left to others.
func memoryFor(base int64, arrays []*array.Array) int64 {
	most := base
	for _, a := range arrays {
		if a != nil {
			most += memoryPerByte * int64(len(a.Data))
		}
	}
	return max(base, min(most, child.MachineMemory()/4*3))
}

func (p *interpreter) close() error {
	var err error
	if p.process != nil {
		err = p.process.Close()
		p.process = nil
	}
	if p.folder != "" {
		err = errors.Join(err, os.RemoveAll(p.folder))
		p.folder = ""
	}
	return err
}

// pythonArray is an array in a file.
type pythonArray struct {
	Name  string `json:"name"`
	DType string `json:"dtype,omitempty"`
	Shape []int  `json:"shape"`
	File  string `json:"file,omitempty"`

	// Of a result: the type that the function returned, and the bits of its significand if that is a
	// float.
	Returned string `json:"returned,omitempty"`
	Bits     int    `json:"bits,omitempty"`
}

// pythonTypes are the names of numpy. Formats that numpy lacks become float32.
var pythonTypes = map[array.DType]string{
	array.F64: "float64", array.F32: "float32", array.F16: "float16", array.BF16: "float32", array.E4M3: "float32", array.E5M2: "float32",
	array.I8: "int8", array.U8: "uint8", array.I32: "int32", array.U32: "uint32", array.I64: "int64", array.U64: "uint64",
}

// fromPythonTypes are the formats of results.
var fromPythonTypes = map[string]array.DType{"float64": array.F64, "int64": array.I64, "uint64": array.U64}

// runPython calls the function of the reference.
func (r *references) runPython(ctx context.Context, i problem.Instance, arrays []*array.Array) (map[string]*array.Array, error) {
	if err := r.startPython(ctx); err != nil {
		return nil, err
	}
	request, err := r.request(i, arrays)
	if err != nil {
		return nil, r.failure("write its inputs: "+err.Error(), "set TMPDIR to a folder with free space")
	}
	if os.Getenv(MemoryVariable) == "" { // the user has set no limit
		r.python.process.AllowMemory(memoryFor(r.python.memory, arrays))
	}
	var reply struct {
		Outputs []pythonArray `json:"outputs"`
	}
	err = r.call(ctx, request, &reply, i.String())
	if err != nil {
		return nil, err
	}
	right := map[string]*array.Array{}
	r.returned = map[string]pythonArray{}
	for n, want := range request.Outputs {
		if n >= len(reply.Outputs) || reply.Outputs[n].Name != want.Name {
			return nil, r.failure(fmt.Sprintf("returned no %q", want.Name), "")
		}
		if right[want.Name], err = readOutput(want, reply.Outputs[n]); err != nil {
			return nil, r.failure(err.Error(), "")
		}
		r.returned[want.Name] = reply.Outputs[n]
	}
	return right, nil
}

// narrower is the type of the results for an output if it has fewer bits than the output's type.
func (r *references) narrower(a spec.Arg) string {
	_, rel := a.Type.Rounding()
	if from := r.returned[a.Name]; from.Bits > 0 && math.Ldexp(1, -from.Bits) > rel {
		return python.OneLine(from.Returned, 40)
	}
	return ""
}

// computeRequest is a request to call the function.
type computeRequest struct {
	Op      string        `json:"op"`
	Axes    [][2]any      `json:"axes"`
	Inputs  []pythonArray `json:"inputs"`
	Outputs []pythonArray `json:"outputs"`
}

// request writes the inputs to files and describes the call.
func (r *references) request(i problem.Instance, arrays []*array.Array) (*computeRequest, error) {
	request := &computeRequest{Op: "compute", Axes: [][2]any{}, Inputs: []pythonArray{}}
	names, values := i.Shape.Axes()
	for n, name := range names {
		request.Axes = append(request.Axes, [2]any{name, values[n]})
	}
	for n, a := range r.Args {
		if a.Role > spec.InOut || arrays[n] == nil {
			continue
		}
		if a.Role != spec.Out {
			file, data := filepath.Join(r.python.folder, fmt.Sprintf("input%d", n)), arrays[n].Data
			dtype := arrays[n].Type
			if dtype.Float() && pythonTypes[dtype] == "float32" {
				data = array.FromFloats(array.F32, arrays[n].Shape, arrays[n].Floats()).Data
			}
			if err := regular.Replace(file, data); err != nil {
				return nil, err
			}
			request.Inputs = append(request.Inputs, pythonArray{Name: a.Name, DType: pythonTypes[dtype], Shape: arrays[n].Shape, File: file})
		}
		if isOutput(a) {
			file := filepath.Join(r.python.folder, fmt.Sprintf("output%d", n))
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			request.Outputs = append(request.Outputs, pythonArray{Name: a.Name, Shape: arrays[n].Shape, File: file})
		}
	}
	return request, nil
}

// readOutput reads an output of the function. The process is not trusted with its size.
func readOutput(want, got pythonArray) (*array.Array, error) {
	if !slices.Equal(got.Shape, want.Shape) {
		return nil, errors.New(notDeclared(want.Name, got.Shape, want.Shape))
	}
	dtype, known := fromPythonTypes[got.DType]
	if !known {
		return nil, fmt.Errorf("%q has dtype %s; want a real number type", want.Name, python.OneLine(got.DType, 40))
	}
	bytes := elements(want.Shape) * dtype.Bytes()
	file, err := regular.OpenNoFollow(want.File)
	if err != nil {
		return nil, fmt.Errorf("wrote no file of %q", want.Name)
	}
	defer file.Close()
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case info.Size() != int64(bytes):
		return nil, fmt.Errorf("wrote %d bytes of %q; want %d", info.Size(), want.Name, bytes)
	}
	data := make([]byte, bytes)
	_, err = io.ReadFull(file, data)
	if err = errors.Join(err, os.Remove(want.File)); err != nil {
		return nil, err
	}
	return &array.Array{Name: want.Name, Type: dtype, Shape: want.Shape, Data: data}, nil
}

// call sends a request. A lost process is closed, so that the next instance starts another.
func (r *references) call(ctx context.Context, request, reply any, what string) error {
	p := &r.python
	err := p.process.Call(ctx, request, reply)
	if err == nil {
		return nil
	}
	late, excess := p.process.Late(), p.process.Excess()
	lost := p.process.Lost()
	if lost {
		_ = p.process.Close() // it was killed
		p.process = nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var known *python.Error
	errors.As(err, &known)
	failure := r.failure(known.Why, known.Do)
	if late {
		failure = r.failure(fmt.Sprintf("no result for %s within %s", what, r.options.Limit), "--reference-timeout gives it more")
	}
	if excess != nil {
		failure = r.failure(fmt.Sprintf("%v for %s", excess, what), MemoryVariable+"=8G allows more")
	}
	if lost {
		if p.losses++; p.losses == maxLosses {
			p.failed = failure
		}
	}
	return failure
}

// startPython starts the process and imports the module of the reference, unless it runs already.
func (r *references) startPython(ctx context.Context) error {
	p := &r.python
	if p.process != nil || p.failed != nil {
		return p.failed
	}
	file, err := r.pythonFile()
	if err != nil {
		p.failed = r.failure(err.Error(), "set TMPDIR to a writable folder")
		return p.failed
	}
	path, err := python.Find(r.options.Python)
	if err == nil {
		p.memory, err = child.EnvironmentMemory(MemoryVariable, child.DefaultMemory)
	}
	if err == nil {
		p.process, err = python.Start(python.Options{
			Python: path, Program: program, Dir: filepath.Dir(file), Limit: r.options.Limit, Memory: p.memory,
			Env: []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"},
		})
	}
	if known := (*python.Error)(nil); errors.As(err, &known) {
		p.failed = r.failure(known.Why, known.Do)
		return p.failed
	} else if err != nil {
		p.failed = r.failure(err.Error(), "")
		return p.failed
	}
	var about struct {
		Python, NumPy string
		Files         []string // modules below the folder of the reference, relative to it
	}
	hello := struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}{"hello", file}
	if err := r.call(ctx, hello, &about, "its import"); err != nil {
		if p.process != nil { // it is well, but the module is not
			p.failed = err
		}
		return err
	}
	r.fact("python", python.OneLine(about.Python, 40))
	r.fact("numpy", python.OneLine(about.NumPy, 40))
	for _, file := range about.Files {
		r.hash(slashpath.Join(slashpath.Dir(r.Reference.Path), file))
	}
	r.hash(r.Reference.Path)
	return nil
}

// pythonFile returns the absolute path of the module, and makes the folder of the arrays. Modules of
// an embedded kernel are copied to a folder on disk.
func (r *references) pythonFile() (string, error) {
	p := &r.python
	if p.folder == "" {
		var err error
		if p.folder, err = os.MkdirTemp("", "attune-reference-"); err != nil {
			return "", err
		}
	}
	if r.dir != "" {
		return filepath.Abs(filepath.Join(r.dir, filepath.FromSlash(r.Reference.Path)))
	}
	target := filepath.Join(p.folder, "kernel")
	tree, at := r.tree()
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || slashpath.Ext(name) != ".py" {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file := filepath.Join(target, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, text, 0o600))
	})
	return filepath.Join(target, filepath.FromSlash(slashpath.Join(at, r.Reference.Path))), err
}
