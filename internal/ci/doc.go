// Package ci writes results in the formats of continuous integration: annotations and summaries of
// GitHub Actions, SARIF, JUnit XML, and the text of Go benchmarks for benchstat.
//
// It knows formats and no records. Names and texts come from users and from kernels, so every writer
// escapes whatever characters they have.
package ci
