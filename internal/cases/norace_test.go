//go:build !race

package cases_test

const raceDetector = false
