// Package lab takes variants of a kernel from a request to a result.
//
// Every command is a consumer of one pipeline:
//
//   - plan: check the request, and resolve each selection into the variant that takes each shape;
//   - build: compile all images of the plan, several at once;
//   - open: open a device, and replace it after a failure that lost it;
//   - check: run one problem on one image and compare its output with the float64 reference;
//   - measure: time one or several images, interleaved.
//
// Run takes variants through the gates and records them. Bench times them beside peers, Compare
// times two of them, Profile counts what one does, Mutate breaks one, and a VariantRunner runs one on
// any inputs. ReproduceRequest turns a record into a request, and Prove builds variants without
// running them. A Pipeline has the steps for a caller that chooses the next variant by the results of
// those before: the searches of package tuner.
//
// A variant fails alone. A compile error, a crash or a hang becomes part of its record, and the
// next variant gets a fresh device.
package lab
