package clib

import (
	"io/fs"
	"slices"

	"attune/internal/form"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// Item is an image that a library needs.
type Item struct {
	Folder int // of the kernel, in Plan.Folders
	Target toolchain.Target

	companion *form.Form // without its image; nil for a variant of the selection
}

// Plan is what a library is built of.
type Plan struct {
	Folders []fs.FS
	Items   []Item

	library  Library
	variants [][Outputs]string // of each choice, by output; empty without one
}

// NewPlan lists the images of a library: a selection of a kernel with some outputs, for the newest
// architecture that all its variants have, the companions, and the forms for other GPUs.
func NewPlan(kernel *spec.Kernel, folder fs.FS, s *spec.Selection, outputs []int) (*Plan, error) {
	p := &Plan{
		Folders:  append([]fs.FS{folder}, kernels.Forms()...),
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
				p.Items = append(p.Items, Item{Target: form.Target(kernel, v, p.library.Arch)})
			}
		}
	}
	hopper := len(p.Folders)
	p.Folders = append(p.Folders, kernels.Portable()...)
	for i, folder := range p.Folders[1:] {
		archs := []string{p.library.Arch}
		if i+1 >= hopper {
			archs = form.PortableArchs
		}
		forms, err := form.Declared(folder, archs...)
		if err != nil {
			return nil, err
		}
		for _, f := range forms {
			p.Items = append(p.Items, Item{Folder: i + 1, Target: f.Target, companion: f})
		}
	}
	return p, nil
}

// Library is the library of the images of all items, in their order.
func (p *Plan) Library(images []*toolchain.Image, version string) Library {
	l := p.library
	l.Version = version
	l.Images = make([][Outputs]*toolchain.Image, len(p.variants))
	for n, item := range p.Items {
		if item.companion != nil {
			companion := *item.companion
			companion.Image = images[n]
			l.Companions = append(l.Companions, &companion)
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
