// Package spec reads kernel.toml, the file beside the CUDA source that declares a kernel: its
// knobs, the constraints between them, its stages, the selection of a variant for each shape, the
// shapes to run and the tolerated error.
//
// # Problems
//
// FP8 attention is built in. Any other kernel declares its problem in the file: a [Declaration] has
// the arguments, the launch, the reference and the work as expressions over axes and knobs. Its
// shapes are [Axes]. All expressions are tried when the file is read; [Declaration.Check] does the
// same for a variant and a shape that the file does not have.
//
// Hypotheses, required speedups and budgets are fixed in this file before a stage runs, so the
// package guesses nothing. An unknown key, a value of the wrong type or a stage that breaks a
// constraint is an error with its line. All errors are reported at once.
//
// # Variants
//
// A [Variant] is a full assignment of the knobs, and belongs to a stage. Its name is the stage and
// the knobs that differ from it, "stage2+USE_XOR_SWIZZLE=1+TILE_N=32". The same assignment in the
// same stage always has the same name, so that the ledger can use the name as a key.
//
// # Parents
//
// The parent of a variant is what it is timed against: one step, not a lineage. A stage names its
// parent and the required speedup over it. A variant that differs from its stage is timed against
// that stage and has no required speedup. So stage1 may be timed against "stage1+USE_CP_ASYNC=0",
// and that variant, run by itself, against stage1. Between different stages, parents form no cycle.
//
// # Rules
//
// A constraint is a Starlark expression over the knobs, such as "not USE_WMMA_PV or USE_WMMA_QK".
// Every knob is an integer; as in Python, 0 is false and any other integer is true. A rule is plain
// arithmetic and logic: no loops, strings or attributes, and no functions but min, max and abs. The
// language, its integers and its limits are those of internal/rule.
//
// # Selections
//
// A [Selection] is a table that picks a variant for each shape, with a parent and a required
// speedup as a stage has them. The first choice whose condition holds applies; the last choice has
// no condition. A condition is a rule as above, over the properties of a shape instead of knobs:
// batch, heads and kv_heads (over all batches), queries, keys, head_dim and causal, which is 0 or
// 1. For a declared kernel these are its axes.
//
// A condition may also use predicates: expressions that the selection names once, with their
// meaning. A predicate sees the properties of a shape and the predicates above it. Its value is an
// integer, or 0 or 1 for a boolean expression, and it must have one for every shape.
//
// # Old names
//
// Recorded runs keep the variant names of their day. A knob lists its earlier names under formerly,
// and a [Retired] entry keeps a removed knob together with the value that its code was fixed at, so
// that [Kernel.Variant] still reads such names. Which knob an old name means depends on the stage.
//
// # Covering
//
// [Kernel.Cover] returns a small set of variants that has every two values of two knobs that any
// allowed variant has.
//
// The package opens no file but kernel.toml. It does not check that a stage's source compiles, nor,
// for attention, that it exists.
package spec
