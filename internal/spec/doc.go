// Package spec reads what a kernel says of itself: its knobs, the rules between them, its stages, which variant takes
// which shape, the shapes it is tried on and the error it may make. All of it stands in one file, kernel.toml, beside the CUDA source.
//
// A kernel is only as good as the promises fixed before it runs, so the file is taken at its word and nothing in it is
// guessed at. A key that is not known, a value of the wrong kind, a stage that breaks a rule: each is an error with its
// line, and all of them are reported at once.
//
// # Variants
//
// A [Variant] is a full assignment of the knobs, and belongs to a stage. It is written as the stage and what differs
// from it, "stage2+USE_XOR_SWIZZLE=1+TILE_N=32". The same assignment in the same stage is always written the same way,
// so the text can serve as a name in the ledger.
//
// # Parents
//
// A variant's parent is what it is measured against: one step, not a lineage. A stage names its parent and the speedup
// it promises over it. A variant that departs from its stage is measured against that stage, and promises nothing. So
// stage1 may be measured against "stage1+USE_CP_ASYNC=0", and that variant, run by itself, against stage1. Between
// different stages the parents form no circle.
//
// # Rules
//
// A constraint is a Starlark expression over the knobs, such as "not USE_WMMA_PV or USE_WMMA_QK". Every knob is an
// integer, and as in Python 0 is false and any other number true. A rule is plain arithmetic and logic: no loops,
// strings or attributes, and no functions but min, max and abs.
//
// # Selections
//
// A [Selection] is a table that names a variant for each shape, with a parent and a promise as a stage has them. The
// first choice whose condition holds is taken, and the last has none. A condition is a rule as above, over the words
// of a shape instead of knobs: batch, heads and kv_heads (of all batches), queries, keys, head_dim and causal, which is
// 0 or 1.
//
// A condition may also use predicates: expressions that the selection names once, with what they
// mean. A predicate sees the words of a shape and the predicates above it. Its value is an integer, or
// 0 or 1 for a boolean expression, and it must have one for every shape.
//
// # Old names
//
// Recorded runs keep the variant names of their day. A knob lists its earlier names under formerly,
// and a [Retired] entry keeps a removed knob together with the value that its code was fixed at, so
// that [Kernel.Variant] still reads such names. Which knob an old name means depends on the stage.
//
// # Covering
//
// [Kernel.Cover] gives few variants that have every two values of two knobs that any allowed variant has.
//
// The package opens no file but kernel.toml. Whether a stage's source exists and compiles is for others to find out.
package spec
