//go:build race

package cases_test

// raceDetector says that Go's race detector watches.
const raceDetector = true
