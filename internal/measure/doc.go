// Package measure turns samples of time into figures that can be stood behind.
//
// A series is summed up by its quantiles and its spread, never by its mean alone. Two series that were taken in turns are compared
// by the ratio of their medians, with an interval from a paired bootstrap: round i of one is resampled together with round i of the
// other, so that a drift both went through does not widen or shift the answer. The bootstrap is seeded and gives the same interval
// for the same samples everywhere.
//
// The interval of a median and the p-value of two series are benchstat's, by its own library, so that who knows those figures meets them
// again. They stand beside the verdicts here and decide none: they take samples for independent, which those of one session are not.
package measure
