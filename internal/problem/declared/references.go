package declared

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	slashpath "path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/regular"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// The kinds of reference.
const (
	fromPython = "python"
	fromSource = "source"
	fromFiles  = "files"
)

// References computes the references of one command.
func (p *Problem) References(o problem.Options) problem.References {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	return &references{
		Problem: p, options: o, computed: map[problem.Instance]*reference{}, failed: map[problem.Instance]error{},
		unordered: map[*toolchain.Image]bool{},
	}
}

// defaultLimit is the time limit of one computation.
const defaultLimit = 2 * time.Minute

// references holds the references of one command, and the Python process that computes them.
type references struct {
	*Problem
	options   problem.Options
	computed  map[problem.Instance]*reference
	failed    map[problem.Instance]error // an instance is not tried twice
	facts     map[string]string
	unordered map[*toolchain.Image]bool
	python    interpreter
	returned  map[string]pythonArray // by output, of the last call of the function
}

// Get computes the reference of an instance, once. It fails once as well: a function that hangs
// costs the time limit for one variant, not for all.
func (r *references) Get(ctx context.Context, i problem.Instance) (problem.Reference, error) {
	if err := r.failed[i]; err != nil {
		return nil, err
	}
	if known := r.computed[i]; known != nil {
		known.ctx = ctx
		return known, nil
	}
	ref := &reference{refs: r, ctx: ctx, instance: i, answers: map[string]*answer{}}
	if _, err := ref.answer(r.defaults(i.Shape)); err != nil {
		if ctx.Err() == nil {
			r.failed[i] = err
		}
		return nil, err
	}
	r.computed[i] = ref
	return ref, nil
}

// KeepOnly drops everything but one instance.
func (r *references) KeepOnly(keep problem.Instance) {
	maps.DeleteFunc(r.computed, func(i problem.Instance, _ *reference) bool { return i != keep })
}

// Secret is the seed of the inputs of relaunches, which have the edges of the fills.
func (r *references) Secret() uint64 { return r.options.Secret | array.EdgeSeed }

// Facts are the kind and the path of the reference, the versions of Python and numpy, and the
// hashes of all files that were read, by "sha256:PATH".
func (r *references) Facts() map[string]string { return r.facts }

// Close ends the Python process.
func (r *references) Close() error { return r.python.close() }

// hashPrefix begins the facts with the hash of a file.
const hashPrefix = "sha256:"

// fact adds a fact.
func (r *references) fact(key, value string) {
	if r.facts == nil {
		r.facts = map[string]string{"reference": r.Reference.Kind, "path": r.Reference.Path}
	}
	r.facts[key] = value
}

// hash adds the hash of a file that was read.
func (r *references) hash(name string) {
	if sum := r.hashFile(name); sum != "" {
		r.fact(hashPrefix+name, sum)
	}
}

// hashFile returns the SHA-256 of a file, empty if it cannot be read.
func (p *Problem) hashFile(name string) string {
	file, err := p.open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return ""
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// open opens a file of the kernel's folder, or one beside a reference that kernels share. A record
// may have any name.
func (p *Problem) open(name string) (fs.File, error) {
	if fs.ValidPath(name) {
		return p.folder.Open(name)
	}
	shared := slashpath.Dir(p.Reference.Path) + "/"
	rest, beside := strings.CutPrefix(slashpath.Clean(name), shared)
	if !strings.HasPrefix(shared, "../") || !beside || !fs.ValidPath(rest) {
		return nil, fs.ErrInvalid
	}
	if p.dir != "" {
		return regular.Open(filepath.Join(p.dir, filepath.FromSlash(name)))
	}
	tree, at := p.tree()
	return tree.Open(slashpath.Join(at, name))
}

// tree is the tree that an embedded kernel is part of, and the path of its folder.
func (p *Problem) tree() (fs.FS, string) {
	if nested, ok := p.folder.(toolchain.Nested); ok {
		return nested.Tree()
	}
	return p.folder, "."
}

// Stale names the files of recorded facts that are missing or have changed since.
func (p *Problem) Stale(facts map[string]string) []string {
	var stale []string
	for _, key := range slices.Sorted(maps.Keys(facts)) {
		if name, isHash := strings.CutPrefix(key, hashPrefix); isHash && p.hashFile(name) != facts[key] {
			stale = append(stale, name)
		}
	}
	return stale
}

// answer is the arrays of an instance and the right outputs.
type answer struct {
	values []int          // of axes and knobs
	arrays []*array.Array // by argument; nil for null pointers, scalars and tensor maps
	want   []*wanted      // by argument; nil for null pointers and all but outputs
	took   time.Duration
	again  bool // computed a second time
}

// newAnswer computes the right outputs of arrays, with the slack of their tolerances. The values are
// those of the axes and of the knobs that the types of the arrays depend on.
func (r *references) newAnswer(ctx context.Context, i problem.Instance, values []int, arrays []*array.Array, slack float64) (*answer, error) {
	started := time.Now()
	var right map[string]*array.Array
	var err error
	switch r.Reference.Kind {
	case fromPython:
		right, err = r.runPython(ctx, i, arrays)
	case fromSource:
		right, err = r.runSource(ctx, i, values, arrays)
	case fromFiles:
		right, err = r.readFiles(i, arrays)
	default:
		panic("BUG: a reference of kind " + r.Reference.Kind)
	}
	if err != nil {
		return nil, err
	}
	a := &answer{values: values, arrays: arrays, want: make([]*wanted, len(arrays)), took: time.Since(started)}
	for n, arg := range r.Args {
		if !isOutput(arg) || arrays[n] == nil {
			continue
		}
		arg.Type = arrays[n].Type
		if a.want[n], err = newWanted(arg, r.tolerance(arg), arrays[n].Shape, right[arg.Name]); err != nil {
			return nil, r.failure(err.Error(), "")
		}
		a.want[n].slack = slack
		if arg.Type.Float() {
			a.want[n].narrow = r.narrower(arg)
		}
	}
	return a, nil
}

// isOutput reports whether a kernel writes an argument.
func isOutput(a spec.Arg) bool { return a.Role == spec.Out || a.Role == spec.InOut }

// failure is the error of the reference.
func (r *references) failure(why, do string) *problem.ReferenceError {
	return &problem.ReferenceError{Why: r.Reference.Path + ": " + why, Do: do}
}

// reference is the reference of one instance.
type reference struct {
	refs     *references
	ctx      context.Context // of the command
	instance problem.Instance
	answers  map[string]*answer // by the key of the buffers, which may depend on knobs
}

var _ problem.Reference = (*reference)(nil)

// answer returns the arrays for values of axes and knobs, and the right outputs.
func (r *reference) answer(values []int) (*answer, error) {
	b, err := r.refs.buffers(values, r.instance.Shape)
	if err != nil {
		return nil, err
	}
	key := b.key()
	if known := r.answers[key]; known != nil {
		return known, nil
	}
	if err := r.refs.checkMemory(r.instance.Shape, b, r.refs.options.Memory); err != nil {
		return nil, err
	}
	arrays, err := r.refs.arrays(r.instance, b)
	if err != nil {
		return nil, err
	}
	a, err := r.refs.newAnswer(r.ctx, r.instance, values, arrays, r.slack())
	if err != nil {
		return nil, err
	}
	r.answers[key] = a
	return a, nil
}

// slack widens the tolerances of a relaunch, whose inputs are other ones in every run.
func (r *reference) slack() float64 {
	if r.instance.Relaunch {
		return problem.TimedSlack
	}
	return 1
}

// of returns the answer for a build.
func (r *reference) of(b problem.Build) (*answer, error) {
	return r.answer(r.refs.Values(b.Variant, r.instance.Shape))
}

// Instance is the instance.
func (r *reference) Instance() problem.Instance { return r.instance }

// Job is the launch of a build.
func (r *reference) Job(b problem.Build, _ device.Facts) (device.Job, error) {
	a, err := r.of(b)
	if err != nil {
		return device.Job{}, err
	}
	job, err := r.refs.jobOf(b, r.instance.Shape, a.arrays)
	if err != nil {
		return device.Job{}, err
	}
	known, parsed := r.refs.unordered[b.Image]
	if !parsed {
		known = unordered(b.Image)
		r.refs.unordered[b.Image] = known
	}
	job.Unordered = known
	return job, nil
}

// Launch makes the job of an instance without its reference.
func (r *references) Launch(b problem.Build, i problem.Instance, most int64) (device.Job, error) {
	made, err := r.buffers(r.Values(b.Variant, i.Shape), i.Shape)
	if err != nil {
		return device.Job{}, err
	}
	if err := r.checkMemory(i.Shape, made, most); err != nil {
		return device.Job{}, err
	}
	arrays, err := r.arrays(i, made)
	if err != nil {
		return device.Job{}, err
	}
	return r.jobOf(b, i.Shape, arrays)
}

// quickReference is the longest computation that is repeated for a timed launch.
const quickReference = 2 * time.Second

// Timed computes the reference for the rotated inputs of a timed launch.
func (r *reference) Timed(ctx context.Context, b problem.Build, job device.Job, rotation device.Rotation) (problem.Reference, error) {
	if !slices.ContainsFunc(job.Args, func(a device.Arg) bool { return a.Unit > 0 }) {
		return r, nil
	}
	a, err := r.of(b)
	if err != nil || r.refs.Reference.Kind == fromFiles || a.took > quickReference {
		return nil, err
	}
	rotated := slices.Clone(a.arrays)
	for i, arg := range job.Rotate(rotation).Args {
		if arg.Unit > 0 {
			turned := *rotated[i]
			turned.Data = arg.Input
			rotated[i] = &turned
		}
	}
	timed, err := r.refs.newAnswer(ctx, r.instance, a.values, rotated, problem.TimedSlack)
	if err != nil {
		return nil, err
	}
	buffers, err := r.refs.buffers(r.refs.Values(b.Variant, r.instance.Shape), r.instance.Shape)
	if err != nil {
		return nil, err
	}
	return &reference{r.refs, ctx, r.instance, map[string]*answer{buffers.key(): timed}}, nil
}

// recomputedReference is the longest computation that is repeated because a kernel does not agree
// with it, once for an instance. The first of a process includes the imports of Python.
const recomputedReference = 20 * time.Second

// Recompute calls the function of the reference again, unless that takes long.
func (r *reference) Recompute(ctx context.Context, b problem.Build) error {
	a, err := r.of(b)
	if err != nil || a.again || r.refs.Reference.Kind != fromPython || a.took > recomputedReference {
		return err
	}
	a.again = true
	second, err := r.refs.newAnswer(ctx, r.instance, a.values, a.arrays, 1)
	if err != nil {
		return err
	}
	for n, w := range a.want {
		if w == nil {
			continue
		}
		if differs := w.differsFrom(second.want[n]); differs != "" {
			r.refs.failed[r.instance] = r.refs.failure(differs+" for equal inputs", "compute it from axes and inputs alone")
			return r.refs.failed[r.instance]
		}
	}
	return nil
}

// Coverage is all elements of the outputs.
func (r *reference) Coverage() oracle.Coverage {
	n := 0
	if a, err := r.answer(r.refs.defaults(r.instance.Shape)); err == nil {
		for _, w := range a.want {
			if w != nil {
				n += w.len()
			}
		}
	}
	return oracle.Coverage{Rows: n, Of: n}
}

// InputCost is nil.
func (r *reference) InputCost() *oracle.ErrorSize { return nil }

// Peer returns the axes, the inputs and the shapes of the outputs.
func (r *reference) Peer() problem.PeerData {
	data := problem.PeerData{Axes: map[string]int{}}
	names, values := r.instance.Shape.Axes()
	for i, name := range names {
		data.Axes[name] = values[i]
	}
	a, err := r.answer(r.refs.defaults(r.instance.Shape))
	if err != nil {
		return data
	}
	for i, arg := range r.refs.Args {
		if a.arrays[i] == nil {
			continue
		}
		if arg.Role == spec.In || arg.Role == spec.InOut {
			data.Arrays = append(data.Arrays, a.arrays[i])
		}
		if isOutput(arg) {
			data.Outputs = append(data.Outputs, &array.Array{Name: arg.Name, Type: a.arrays[i].Type, Shape: a.arrays[i].Shape})
		}
	}
	return data
}

// contextual reports whether an error is that of a cancelled context.
func contextual(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// notDeclared describes an output that has not the declared shape.
func notDeclared(name string, have, want []int) string {
	return fmt.Sprintf("%q has shape %s; %s declares %s", name, tuple(have), spec.File, tuple(want))
}
