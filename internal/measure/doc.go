// Package measure computes statistics of time samples: quantiles, confidence intervals and
// comparisons.
//
// A series is summarised by its quantiles and its spread, never by its mean alone. Two interleaved
// series are compared by the ratio of their medians, with a confidence interval from a paired
// bootstrap. It resamples round i of both series together, so a drift that affects both neither
// widens nor shifts the interval. The bootstrap has a fixed seed: the same samples give the same
// interval on every machine.
//
// The interval of a median and the p-value of two series are benchstat's, computed by its library.
// They are reported beside the verdicts and do not decide them: they assume independent samples,
// and samples of one session are not independent.
package measure
