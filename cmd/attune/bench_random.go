package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/spec"
)

// randomOptions are those of a bench on random problems.
type randomOptions struct {
	count int // 0 for named shapes
	seed  uint64
}

const (
	maxRandom = 10_000 // problems; a bench of more takes days
	// A bench of random problems has many of them and needs few samples of each.
	randomRounds    = 12
	randomProcesses = 1
)

func (o *randomOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.count, "random", 0, "`N` problems drawn from [random] of kernel.toml")
	f.Uint64Var(&o.seed, "seed", 0, "of the random problems; required with --random")
}

// checkRandom refuses what random problems exclude, and sets their defaults.
func (o *benchOptions) checkRandom(changed func(flag string) bool) error {
	switch {
	case !changed("random") && changed("seed"):
		return errors.New("--seed draws random problems and needs --random; the seed of the inputs is --seeds")
	case !changed("random"):
		return nil
	case o.random.count < 1 || o.random.count > maxRandom:
		return fmt.Errorf("--random %d: want 1 to %d problems", o.random.count, maxRandom)
	case !changed("seed"):
		return errors.New("--random needs --seed, which names the problems; take one that you have not tuned with")
	case changed("shapes"):
		return errors.New("--random draws the shapes; leave out --shapes")
	}
	if !changed("rounds") {
		o.rounds = randomRounds
	}
	if !changed("processes") {
		o.processes = randomProcesses
	}
	o.energy = o.energy && changed("energy")
	return nil
}

// draw draws the problems of a request that all its variants take. Without variants it takes the
// selections of the kernel, else its stages.
func (o *randomOptions) draw(kernel *spec.Kernel, r *lab.BenchRequest, all bool) error {
	if kernel.Random == nil {
		return fmt.Errorf("%s: %w", kernel.Name, spec.ErrNoRandom)
	}
	if all && len(kernel.Selections) > 0 {
		r.Variants, r.Selections = nil, kernel.Selections
	}
	accept := func(s spec.Shape) error {
		return lab.Request{Variants: r.Variants, Selections: r.Selections, Shapes: []spec.Shape{s}, Seeds: []uint64{r.Seed}, Arch: r.Arch}.Check()
	}
	drawn, err := kernel.Random.Draw(o.count, o.seed, accept)
	if err != nil {
		return err
	}
	r.Shapes = drawn.Shapes
	r.Random = &run.Random{
		Count: o.count, Seed: o.seed, Refused: drawn.Refused,
		Against: kernel.Random.Against, OverheadUS: kernel.Random.OverheadUS, Required: kernel.Random.Required,
	}
	if drawn.Why != nil {
		r.Random.RefusedWhy = drawn.Why.Error()
	}
	return nil
}

// printOutline prints what a bench would time.
func (a *app) printOutline(kernel *spec.Kernel, r lab.BenchRequest, markdown bool) error {
	outline, err := r.Outline(kernel)
	if err != nil {
		return usageError{err}
	}
	if a.json {
		return a.printJSON(outline)
	}
	return a.printDocument(document.Outline(outline), markdown)
}
