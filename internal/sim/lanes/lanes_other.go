//go:build !amd64

package lanes

const haveAssembly = false

func runAssembly(*Op, int, *V32, *V64, *uint32) {
	panic("BUG: there is no assembly for this processor")
}
