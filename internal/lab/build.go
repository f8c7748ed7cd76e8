package lab

import (
	"context"
	"sync"

	"attune/internal/crash"
	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// builds makes images, each once, several at a time.
type builds struct {
	problem problem.Problem
	compile func(spec.Variant) (*toolchain.Image, error)
	cancel  context.CancelFunc

	mu      sync.Mutex
	entries map[string]*build // by variant
}

type build struct {
	ready chan struct{} // closed when image or err is set
	image *toolchain.Image
	err   error
}

// startBuilds starts to build variants, for an architecture or, if that is empty, for the device.
// The caller collects them with image and ends the rest with stop.
func (l *Lab) startBuilds(ctx context.Context, arch string, variants ...spec.Variant) *builds {
	ctx, cancel := context.WithCancel(ctx)
	b := &builds{problem: l.problem(), cancel: cancel, entries: map[string]*build{}}
	b.compile = func(v spec.Variant) (*toolchain.Image, error) {
		arch, err := Arch(v.Stage(), arch, l.Device.facts.Arch)
		if err != nil {
			return nil, err
		}
		image, _, err := l.Builder.Build(ctx, form.Target(l.Kernel, v, arch))
		return image, err
	}
	for _, v := range variants {
		b.start(v)
	}
	return b
}

// start builds a variant in the background, unless that was done before.
func (b *builds) start(v spec.Variant) *build {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.entries[v.String()]; known != nil {
		return known
	}
	entry := &build{ready: make(chan struct{})}
	b.entries[v.String()] = entry
	go func() {
		defer close(entry.ready)
		defer crash.Catch(&entry.err, func() string { return "the build of " + v.String() })
		entry.image, entry.err = b.compile(v)
	}()
	return entry
}

// image waits for the image of a variant.
func (b *builds) image(v spec.Variant) (*toolchain.Image, error) {
	entry := b.start(v)
	<-entry.ready
	return entry.image, entry.err
}

// forget drops a finished build, so that a long search does not keep every image in memory.
func (b *builds) forget(v spec.Variant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, v.String())
}

// launchable waits for the build of a variant that will be launched, and checks that it can be.
func (b *builds) launchable(v spec.Variant) (problem.Build, error) {
	image, err := b.image(v)
	if err != nil {
		return problem.Build{}, err
	}
	launchable := problem.Build{Variant: v, Image: image}
	return launchable, checkParameters(b.problem, launchable)
}

// stop ends the builds that are still running, and waits until their compilers are gone and have
// left no temporary files.
func (b *builds) stop() {
	b.cancel()
	for _, entry := range b.entries {
		<-entry.ready
	}
}

// buildAll waits for all variants and reports each as a step.
func (l *Lab) buildAll(ctx context.Context, arch string, variants ...spec.Variant) (map[string]problem.Build, error) {
	b := l.startBuilds(ctx, arch, variants...)
	defer b.stop()
	all := map[string]problem.Build{}
	for _, v := range variants {
		l.progress(Progress{Subject: v.String(), Step: "building"})
		built, err := b.launchable(v)
		if err != nil {
			return nil, err
		}
		all[v.String()] = built
	}
	return all, nil
}
