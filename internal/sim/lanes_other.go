//go:build !amd64

package sim

func assemblyLoops() map[string]vectorLoop { return nil }
