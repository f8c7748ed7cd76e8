package clib

import (
	"fmt"
	"io/fs"
	"slices"

	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/problem/attention/launch"
	"attune/internal/problem/declared"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// companionKnobs are the kernels that a library has beside its selection, with the knobs that its
// launches depend on.
var companionKnobs = map[string][]string{
	"decode":   {headDimKnob, "BLOCKS_PER_SM", "Q_BITS"},
	"prefill":  {headDimKnob, "TILE_M"},
	"native":   {headDimKnob, "TILE_M", "TILE_N", "USE_BF16", exponentialsKnob},
	"mixed":    {headDimKnob, "TILE_M", "TILE_N"},
	"cast":     {"THREADS", "CHUNKS"},
	"quantize": {"THREADS", "CHUNKS", "BLOCKS"},
	"append":   {"THREADS"},
}

// headDimKnob is the knob that all kernels of the library are built for, and exponentialsKnob how many
// of eight exponentials are approximated.
const (
	headDimKnob      = launch.HeadDimKnob
	exponentialsKnob = "EXP2_LINEAR_EIGHTHS"
)

// Item is an image that a library needs.
type Item struct {
	Folder int // of the kernel, in Plan.Folders
	Target toolchain.Target

	companion Companion // without its image
}

// Plan is what a library is built of.
type Plan struct {
	Folders []fs.FS
	Items   []Item

	library  Library
	variants [][Outputs]string // of each choice, by output; empty without one
}

// NewPlan lists the images of a library: a selection of a kernel with some outputs, for the newest
// architecture that all its variants have, and the companions.
func NewPlan(kernel *spec.Kernel, folder fs.FS, s *spec.Selection, outputs []int) (*Plan, error) {
	p := &Plan{
		Folders:  []fs.FS{folder, kernels.Decode(), kernels.Prefill(), kernels.Native(), kernels.Mixed(), kernels.Cast(), kernels.Quantize(), kernels.Append()},
		library:  Library{Selection: s, Arch: s.Archs[len(s.Archs)-1]},
		variants: make([][Outputs]string, len(s.Choices)),
	}
	for _, output := range outputs {
		for i, c := range s.Choices {
			v, err := Variant(c.Variant, output)
			if err != nil {
				return nil, err
			}
			p.variants[i][output] = v.String()
			if !slices.ContainsFunc(p.Items, func(known Item) bool { return known.Target.Variant == v.String() }) {
				p.Items = append(p.Items, Item{Target: lab.Target(kernel, v, p.library.Arch)})
			}
		}
	}
	for i, folder := range p.Folders[1:] {
		items, err := companions(folder, p.library.Arch)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			item.Folder = i + 1
			p.Items = append(p.Items, item)
		}
	}
	return p, nil
}

// companions lists the stages of a declared kernel for an architecture.
func companions(folder fs.FS, arch string) ([]Item, error) {
	kernel, err := spec.Load(folder)
	if err != nil {
		return nil, err
	}
	shapes, err := kernel.Shapes(kernel.Run.SimShapes[0]) // block and shared memory depend on knobs alone
	if err != nil {
		return nil, err
	}
	launch := declared.New(kernel, folder, kernel.Name)
	var items []Item
	for _, stage := range kernel.Stages {
		if !slices.Contains(stage.Archs, arch) {
			continue
		}
		build := problem.Build{Variant: stage.Variant()}
		c := Companion{Cooperative: kernel.Declared.Cooperative}
		if c.Threads, err = launch.Threads(build, shapes); err == nil {
			c.SharedBytes, err = launch.SharedBytes(build, shapes)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", stage.Name, err)
		}
		items = append(items, Item{Target: lab.Target(kernel, stage.Variant(), arch), companion: c})
	}
	return items, nil
}

// Library is the library of the images of all items, in their order.
func (p *Plan) Library(images []*toolchain.Image, version string) Library {
	l := p.library
	l.Version = version
	l.Images = make([][Outputs]*toolchain.Image, len(p.variants))
	for n, item := range p.Items {
		if item.Folder > 0 {
			item.companion.Image = images[n]
			l.Companions = append(l.Companions, item.companion)
			continue
		}
		for i := range p.variants {
			for output, variant := range p.variants[i] {
				if variant == item.Target.Variant {
					l.Images[i][output] = images[n]
				}
			}
		}
	}
	return l
}
