// Package ptx parses PTX text into a Module of resolved instructions.
//
// It accepts PTX 7.0 to 9.x as nvcc 12 and 13 print it, and handwritten PTX. The parser resolves
// names as it reads:
//   - Every register of a function, inner scopes included, has an index into Function.Registers.
//     Inline assembly opens such scopes, and their names hide outer names.
//   - A label becomes the index of the instruction after it.
//   - A symbol becomes a pointer to its Variable or Function.
//   - A vector register becomes its scalar components.
//
// The result is a flat list of instructions per function; operands need no further lookup.
// Instruction.Modifiers is a list in source order. Callers must treat it as a set, because ptxas
// accepts modifiers in any order.
//
// The package knows syntax and scope, not semantics: the simulator decides whether an instruction
// exists and what it does. Errors are of type *SyntaxError and quote the line.
//
// Parse rejects these constructs by name, because no kernel here needs them: textures and
// surfaces, .alias, 32-bit addresses, the byte and halfword selectors of video instructions
// (%r1.b0), the address form a[i], and input beyond the limits in parse.go. It skips .pragma,
// .attribute and every section except .debug_str.
//
// Two analyses work on functions: where diverged threads reconverge (flow.go), and where the values
// of registers come from and go to (dataflow.go).
package ptx
