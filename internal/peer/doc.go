// Package peer runs other implementations of attention, so that ours can be timed beside them: those of PyTorch, and FlashAttention-3 where it is installed.
//
// They live in a helper: the user's own Python, which gets a small program on its standard input and then answers requests, one line of JSON each, over two
// pipes. The helper times as attune does, by replaying a CUDA graph of equal launches between two events, and its answers come back as files, so that attune's
// own oracle judges them.
//
// Nothing that a helper says is believed before it is looked at: it may be missing, hang, die, talk rubbish or give times that cannot be. Each of these is an
// Error with a reason and a way out, costs the peer and nothing else.
//
// The package knows nothing of our kernels, of turns, or of what is right: that is for the lab.
package peer
