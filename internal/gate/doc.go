// Package gate judges a variant: the four gates in their order, and the verdict they add up to.
//
// The order is resources, correctness, performance, profile, and the first gate that fails ends the run: right before fast. A gate is
// a function from what was seen to a Check; it neither builds nor runs nor measures. What was not seen is not-measured, which is
// no failure and no success either, and nothing here turns it into a number.
//
// Thresholds come from the spec, where they stood before the run.
package gate
