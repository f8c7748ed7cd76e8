// Package tensormap describes the tensor maps of TMA copies (cp.async.bulk.tensor): a tensor in
// global memory and the box of it that one copy moves. A [Map] has the parameters of
// cuTensorMapEncodeTiled, and [Map.Check] rejects what that function rejects. Each device encodes a
// map into the 128 bytes that a kernel reads in its own way.
package tensormap
