// Package device says what it means to run a kernel, whatever runs it.
//
// A Job is a launch as data: the image, the geometry and the arguments. A Machine is memory and launches, and nothing else:
// package cuda is one. Run takes a job through a machine in the way every result here is made, because a kernel under test is
// not to be trusted:
//
//   - every buffer stands between guard bytes that are checked after the launch: writing past the end is seen, even where the
//     chip does not mind;
//   - outputs are poisoned before each launch, so that what a kernel leaves out is not what the last one left behind;
//   - inputs are read back and must not have changed;
//   - the job runs twice, with different poison and guards, and both answers must agree bit for bit.
//
// Package isolate runs a machine in a child process, so that a crash, a hang or a poisoned context costs one variant only.
//
// Nothing here knows what attention is, or what is right: that is for the gates.
package device
