// Package gate decides about a variant: the four gates in their order, and the verdict.
//
// The order is resources, correctness, performance, profile. The first gate that fails ends the
// run, so that nothing incorrect is timed. A gate is a function from measurements to a Check; it
// does not build, run or measure. Without a measurement the outcome is not-measured, which is
// neither a failure nor a success.
//
// Thresholds come from the spec, which fixes them before the run.
package gate
