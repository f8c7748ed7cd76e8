//go:build !amd64

package mma

const haveAssembly, haveWide = false, false

func stepAssembly(*uint32, *float32, *int16, *float32, *int16, *stepPlan) uint64 {
	panic("BUG: stepAssembly called on an architecture without assembly")
}

func stepWide(*uint32, *float32, *int16, *float32, *int16, *int32, *int32, *stepPlan) uint64 {
	panic("BUG: there is no assembly")
}

func decodeTableRow(*float32, *int16, *uint32, int, *element, *int32) {
	panic("BUG: there is no assembly")
}

func decodeTableColumns(*float32, *int16, *uint32, int, int, *element, *int32) {
	panic("BUG: there is no assembly")
}

func decodeAssembly(*float32, *int16, *uint32, int, *decodePlan) uint32 {
	panic("BUG: there is no assembly")
}

func encodeAssembly(*uint32, *uint32, int) uint32 { panic("BUG: there is no assembly") }

func integersAssembly(*int32, *int16, *int16, int, int, int) { panic("BUG: there is no assembly") }
