//go:build !amd64

package sdpa

var vectors = goVectors
