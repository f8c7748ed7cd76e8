// Package cases runs PTX kernels that are described as data: a JSON file with the launch, the
// arguments and the expected result, and the PTX beside it.
//
// A case passes if the checkers report the expected findings and the buffers hold the expected
// bytes. A buffer with ulp_f32 is compared as float32 values within that many units in the last
// place.
//
// The test data has three folders:
//   - testdata/recorded: outputs of an H200;
//   - testdata/defects: kernels with one known defect, each with a correct counterpart;
//   - testdata/more: further such pairs, handwritten in PTX.
//
// Case.Job turns a case into a job for any device. The tests use it to compare a GPU with the
// cases, and Record stores the output of a GPU in a case. Case.Mutate measures how many
// single-line mutations of its kernel a case detects.
package cases
