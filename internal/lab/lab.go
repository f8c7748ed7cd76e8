package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// Lab is what a run needs.
type Lab struct {
	Kernel  *spec.Kernel
	Builder *toolchain.Builder
	Ledger  *ledger.Ledger

	// Open gives a fresh device for one variant. With no device at hand it is nil, and NoDevice says why.
	Open     func(ctx context.Context) (device.Device, error)
	Facts    device.Facts // of the device
	NoDevice string
	NoClock  bool // the device measures no time, and parents need not be built

	Simulation *run.Simulation // how the simulator is set, where it is the device

	Git     toolchain.Git
	Version string      // of this program
	Watch   func(Event) // told of progress; may be nil

	// Render and RenderBench write report.md of a record. Without them a record has no report.md.
	Render      func(*run.Run) []byte
	RenderBench func(*run.Bench) ([]byte, error)
}

// Event is a step of the work, for a status line.
type Event struct {
	Variant string
	Doing   string
	Done    int
	Total   int // 0 where there is nothing to count
}

// Request is what to run.
type Request struct {
	Variants   []spec.Variant
	Selections []*spec.Selection // after the variants
	Shapes     []tensor.Shape
	Judged     []tensor.Shape // those that the performance gate looks at, where they are among Shapes
	Seeds      []uint64
	Samples    int           // of each shape's time
	L2         run.L2        // that a timed launch finds
	Against    *spec.Variant // in place of each variant's own parent
	Arch       string        // in place of the device's, or of the newest the stage is for

	Reproduces string // the recorded run that this does again

	partOf *spec.Selection // whose shapes of one variant these are
}

// Run takes each variant through the gates and records it, and each selection: its parts, and then itself. done is called with each record as soon as it is in the ledger, or, with no
// id, when the ledger would not take it. An error means that the lab itself failed or was interrupted; what variants do wrong stands in their
// records.
func (l *Lab) Run(ctx context.Context, r Request, done func(*run.Run)) error {
	if err := r.Check(); err != nil {
		return err
	}
	builds := l.startBuilds(ctx, r, l.withParents(r))
	defer builds.stop()
	references, measured := newReferences(), measurements{}
	for _, v := range r.Variants {
		if _, err := l.runAndRecord(ctx, r, v, builds, references, measured, done); err != nil {
			return err
		}
	}
	for _, s := range r.Selections {
		if err := l.runSelection(ctx, r, s, builds, references, done); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) runAndRecord(ctx context.Context, r Request, v spec.Variant, b *builds, refs *references, measured measurements, done func(*run.Run)) (
	*run.Run, error,
) {
	record, err := l.runVariant(ctx, r, v, b, refs, measured)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v, err)
	}
	err = l.record(ctx, record)
	done(record)
	return record, err
}

// RequestError is the error of a request that asks for what cannot be.
type RequestError string

func (e RequestError) Error() string { return string(e) }

// Check refuses architectures and shapes that a variant is not for, before anything is started.
func (r Request) Check() error {
	for _, shape := range r.Shapes {
		if shape.Group() > 1 && max(shape.Group(), shape.KVHeadCount()) > mostInGrid {
			return RequestError(fmt.Sprintf("shape %s has %d K/V heads over all batches, each for %d heads; "+
				"where heads share them a grid has room for %d of both", shape, shape.KVHeadCount(), shape.Group(), mostInGrid))
		}
	}
	for _, v := range r.Variants {
		if _, err := Arch(v.Stage(), r.Arch, ""); err != nil {
			return err
		}
		if err := r.checkHeadDim(v); err != nil {
			return err
		}
	}
	for _, s := range r.Selections {
		parts, err := r.parts(s)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := part.Check(); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	if r.Against != nil { // a parent of its own has the variant's head dim
		return r.checkHeadDim(*r.Against)
	}
	return nil
}

func (r Request) checkHeadDim(v spec.Variant) error {
	dim, ok := v.Value(spec.HeadDimKnob)
	for _, shape := range r.Shapes {
		if ok && dim != shape.HeadDim {
			return RequestError(fmt.Sprintf("shape %s has head dim %d, and %s is built for %d", shape, shape.HeadDim, v, dim))
		}
	}
	return nil
}

// startBuilds begins to build variants for a request, several at once; wait collects them one by one, and stop ends the rest.
func (l *Lab) startBuilds(ctx context.Context, r Request, variants []spec.Variant) *builds {
	ctx, cancel := context.WithCancel(ctx)
	b := &builds{entries: map[string]*build{}, cancel: cancel}
	for _, v := range variants {
		key := v.String()
		if b.entries[key] != nil {
			continue
		}
		entry := &build{ready: make(chan struct{})}
		b.entries[key] = entry
		go func() {
			defer close(entry.ready)
			target, err := l.target(r, v)
			if err != nil {
				entry.err = err
				return
			}
			entry.image, _, entry.err = l.Builder.Build(ctx, target)
		}()
	}
	return b
}

type builds struct {
	entries map[string]*build
	cancel  context.CancelFunc
}

type build struct {
	ready chan struct{}
	image *toolchain.Image
	err   error
}

func (b *builds) wait(v spec.Variant) (*toolchain.Image, error) {
	entry := b.entries[v.String()]
	<-entry.ready
	return entry.image, entry.err
}

// stop ends the builds that nobody will ask for, and waits until their compilers are gone and have left nothing behind.
func (b *builds) stop() {
	b.cancel()
	for _, entry := range b.entries {
		<-entry.ready
	}
}

// withParents is every variant and, where times are taken, what it is measured against.
func (l *Lab) withParents(r Request) []spec.Variant {
	var all []spec.Variant
	for _, v := range r.Variants {
		all = append(all, v)
		if parent, ok := parentOf(r, v); ok && l.Open != nil && !l.NoClock {
			all = append(all, parent)
		}
	}
	for _, s := range r.Selections {
		parts, _ := r.parts(s) // the request has been checked
		for _, part := range parts {
			all = append(all, l.withParents(part)...)
		}
	}
	return all
}

// parentOf is what a variant is measured against. One for another head dim than its stage has none of its own: the two have no shape in common.
func parentOf(r Request, v spec.Variant) (spec.Variant, bool) {
	if r.Against != nil {
		return *r.Against, true
	}
	parent, ok := v.Parent()
	if r.partOf != nil {
		parent, ok = r.partOf.Parent()
	}
	return parent, ok && HeadDim(parent) == HeadDim(v)
}

// target says what to build for a variant.
func (l *Lab) target(r Request, v spec.Variant) (toolchain.Target, error) {
	arch, err := Arch(v.Stage(), r.Arch, l.Facts.Arch)
	if err != nil {
		return toolchain.Target{}, err
	}
	return Target(l.Kernel, v, arch), nil
}

// Target says what to build for a variant on an architecture.
func Target(kernel *spec.Kernel, v spec.Variant, arch string) toolchain.Target {
	knobs := map[string]int{}
	for _, s := range v.Values() {
		knobs[s.Knob] = s.Value
	}
	return toolchain.Target{Kernel: kernel.Name, Variant: v.String(), Source: v.Stage().Source, Arch: arch, Knobs: knobs}
}

// ShippedTargets is what travels with a kernel: every stage, every variant of a selection, and what they are measured against, for each of their
// architectures.
func ShippedTargets(kernel *spec.Kernel) []toolchain.Target {
	var targets []toolchain.Target
	known := map[string]bool{}
	add := func(archs []string, variants ...spec.Variant) {
		for _, v := range variants {
			for _, arch := range archs {
				t := Target(kernel, v, arch)
				if !known[t.String()] {
					known[t.String()] = true
					targets = append(targets, t)
				}
			}
		}
	}
	for _, stage := range kernel.Stages {
		add(stage.Archs, stage.Variant())
		if parent, ok := stage.Variant().Parent(); ok {
			add(stage.Archs, parent)
		}
	}
	for _, s := range kernel.Selections {
		add(s.Archs, s.Variants()...)
		if parent, ok := s.Parent(); ok {
			add(s.Archs, parent)
		}
	}
	return targets
}

// record gives the run its id and writes it into the ledger. A run that is not in the ledger has no id.
func (l *Lab) record(ctx context.Context, record *run.Run) error {
	record.ID = ledger.NewID(record.Time, record.Stage)
	files, err := l.documents(record)
	if err == nil {
		_, err = l.Ledger.Record(ctx, files)
	}
	if err != nil {
		record.ID = ""
	}
	return err
}

func (l *Lab) tell(e Event) {
	if l.Watch != nil {
		l.Watch(e)
	}
}
