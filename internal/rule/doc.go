// Package rule is the language of conditions and expressions: constraints, predicates and conditions
// of selections, the launch, fills and shapes of kernel.toml, and the constraints of public tuning
// spaces.
//
// A text becomes one syntax tree ([Parse]), and everything works on that tree:
//
//   - [Rule.Eval] evaluates it. It is compiled to closures once, and allocates nothing.
//   - Intervals bound the value of a part while names are not assigned, or over the ranges of names.
//   - A [Solver] finds the assignments of names that obey rules: [Solver.Each] enumerates them, a
//     [Search] finds single ones by propagation, and a [Diagram] counts and draws them.
//   - [C] writes it in C, and proves by intervals that C computes the same.
//
// # Values
//
// There is one meaning, that of Starlark. Integers are exact; // rounds down, and % has the sign of
// the divisor. / gives a real. An integer and a real are compared exactly. A boolean is no number: it
// equals no integer, and has no arithmetic. "and" and "or" return one of their operands. A rule that
// divides by zero, or that applies an operator to the wrong types, has no value and does not hold.
//
// # Languages
//
// The parser is Starlark's; a [Language] says which parts of Starlark a rule may contain. A foreign
// dialect is translated by its importer: internal/tune turns Python into rules of the language
// [Imported], where a boolean is made a number explicitly.
//
// # Limits
//
// A rule need not be trusted. Its text, its operations and the size of its integers are limited, so
// that an evaluation is short. An enumeration, a search and a diagram end after a number of steps,
// and report that they did.
//
// # Diagrams
//
// An enumeration checks a rule when its last name is assigned, so that one over many names is checked
// for all their combinations. A diagram joins partial assignments with the same consequences. It
// finds the 16,808 solutions of a product of eight names with 32 values each in tenths of a second.
// An enumeration that pruned by intervals took 34 s.
package rule
