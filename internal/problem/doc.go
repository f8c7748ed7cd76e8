// Package problem defines what a kernel computes: its sizes, inputs, launch, reference, limits and
// work.
//
// A [Problem] answers the questions of the pipeline, which plans, builds, checks and measures
// without knowledge of a particular computation. [References] computes inputs and right outputs of
// one command, each once. A [Reference] makes the launch of a build and compares its outputs.
//
// The failure of a reference is a [ReferenceError]. It says nothing about the kernel, so that the
// correctness gate is not measured.
package problem
