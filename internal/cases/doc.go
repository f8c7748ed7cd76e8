// Package cases runs PTX kernels that are given as data: a JSON file with the launch, the arguments and what is expected, and the PTX beside it.
//
// A case passes when what the checkers report is what the case expects, and when the buffers hold what it says: bit for bit, or, where the case
// gives a number of ulps, within them as float32. In testdata/recorded are outputs of an H200, in testdata/defects kernels with one known defect and their
// clean twins, and in testdata/more such pairs written by hand, in PTX alone.
//
// A case is also a job for any device (Case.Job), which is how the tests hold a GPU against it, and how Record comes by what a GPU gives.
package cases
