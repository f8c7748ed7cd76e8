// Package measure turns samples of time into figures that can be stood behind.
//
// A series is summed up by its quantiles and its spread, never by its mean alone. Two series that were taken in turns are compared
// by the ratio of their medians, with an interval from a paired bootstrap: round i of one is resampled together with round i of the
// other, so that a drift both went through does not widen or shift the answer. The bootstrap is seeded and gives the same interval
// for the same samples everywhere.
package measure
