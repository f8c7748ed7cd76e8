//go:build !amd64

package mma

const haveAssembly = false

func stepAssembly(*uint32, *float32, *int32, *float32, *int32, *stepPlan) uint64 {
	panic("BUG: stepAssembly called on an architecture without assembly")
}
