//go:build !amd64

package mma

const haveAssembly = false

func stepAssembly(*uint32, *float32, *int32, *float32, *int32, *stepPlan) uint64 {
	panic("BUG: stepAssembly called on an architecture without assembly")
}

func decodeAssembly(*float32, *int32, *uint32, int, *decodePlan) uint32 {
	panic("BUG: there is no assembly")
}

func encodeAssembly(*uint32, *uint32, int) uint32 { panic("BUG: there is no assembly") }
