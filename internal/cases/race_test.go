//go:build race

package cases_test

// raceDetector reports that the Go race detector is on.
const raceDetector = true
