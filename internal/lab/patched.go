package lab

import (
	"time"

	"attune/internal/patch"
)

// patchedBuildLimit limits a compilation of foreign sources: templates can keep a compiler busy for
// ever. The shipped kernels take seconds.
const patchedBuildLimit = 2 * time.Minute

// Patched returns a lab whose sources differ in some files, by path. Only builds of candidates see
// the changes: spec, problem, inputs and reference are those of the kernel's folder.
func (l *Lab) Patched(files map[string][]byte) *Lab {
	patched := *l
	patched.Problem, patched.trusted = l.problem(), l.Builder
	patched.Builder = l.Builder.Untrusted(patch.Overlay(l.Builder.Folder(), files), patchedBuildLimit)
	return &patched
}
