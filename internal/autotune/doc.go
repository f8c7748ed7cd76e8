// Package autotune measures on a GPU which forms of the portable kernels the libraries should launch
// there. Problems that span the libraries' rule are timed with every form that computes them, the rates
// of the GPU are probed, and a table is derived for each head dim and type. A table that does not beat
// the rule on problems that it was not derived from is left out, so that the rule stays.
package autotune
