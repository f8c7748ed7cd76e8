// Package arith is the meaning of the scalar PTX instructions, lane by lane.
package arith
