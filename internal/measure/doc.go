// Package measure computes statistics of time samples: quantiles, confidence intervals and
// comparisons.
//
// A series is summarised by its quantiles and its spread, never by its mean alone. Two interleaved
// series are compared by the ratio of their medians, with a confidence interval from a paired
// bootstrap. Round i of one series is resampled together with round i of the other, so a drift that
// affects both neither widens nor shifts the interval. The bootstrap has a fixed seed: the same
// samples give the same interval on every machine.
//
// The interval of a median and the p-value of two series are those of benchstat, by its own
// library, so they are comparable with figures from there. They are reported beside the verdicts
// and do not decide them: they assume independent samples, and samples of one session are not
// independent.
package measure
