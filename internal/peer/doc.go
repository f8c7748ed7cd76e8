// Package peer runs other implementations of a problem, to time ours beside them. Those of attention
// are PyTorch's backends, and FlashAttention-3 if it is installed. Those of a declared problem are
// functions of the user's Python files, which get and return tensors of PyTorch.
//
// The peers run in a helper process: the user's Python, which reads a small program (helper.py) on
// its standard input and then serves requests over two pipes, one line of JSON each. The helper
// times as attune does: it replays a CUDA graph of equal launches between two events. It returns
// outputs as files, so that attune compares them with its own reference.
//
// A helper is untrusted: it may be missing, hang, die, write garbage or return impossible times.
// Each of these becomes an Error with a reason and a remedy. It costs the peer and nothing else.
//
// The package does not know our kernels, the order of rounds or the reference; package lab does.
package peer
