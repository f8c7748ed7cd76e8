package array

// Draw fills an array from a seed: normal, uniform (a to b), zeros, ones, iota or integers (a to b,
// without b). The name of the argument selects the random stream, so that an added argument changes
// no other input. The bits do not depend on the number of cores.
func Draw(t DType, shape []int, fill string, a, b float64, seed uint64, name string) (*Array, error) {
	panic("not yet")
}
