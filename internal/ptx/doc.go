// Package ptx reads PTX: text in, a module of resolved instructions out.
//
// It reads PTX 7.0 to 9.x as nvcc 12 and 13 print it and as people write it. Modifiers of an instruction are kept as a list and
// are to be looked up as a set, because ptxas takes them in any order. Names are resolved while reading: every register of a
// function has an index, inner scopes included (inline assembly opens one, and names in it hide names outside), labels are
// indexes of instructions, and symbols point to what they name. What remains is flat: a list of instructions with operands that
// need no further look-up. Vector registers become their parts.
//
// The package knows syntax and scope, not meaning: whether an instruction exists, and what it does, is for the simulator to say.
// Errors quote the line. It refuses by name what no kernel here needs: textures and surfaces, .alias, addresses of 32 bits, the
// selectors of video instructions (%r1.b0), the form a[i] of an address, and texts beyond the limits in parse.go. It passes over
// .pragma, .attribute, and sections other than .debug_str.
//
// Two analyses work on functions: where diverged threads reconverge (flow.go), and where the values of
// registers come from and go to (dataflow.go).
package ptx
