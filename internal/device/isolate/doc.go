// Package isolate runs a machine in a child process.
//
// A kernel under test can crash, hang, or leave a CUDA context that cannot be used any more. A
// process cannot recover from any of these, so each variant gets a process of its own. The program
// starts itself again as a server of one machine (Serve) and exchanges messages with it over two
// pipes (Start). A failure of the child costs that variant only, and the error has its cause: a
// fault that the driver reported, a crash with its signal, or a timeout.
//
// Both ends are the same program, so a message is a Go value in gob. Images, inputs and outputs
// follow the message as raw bytes. Bytes that the previous request had too are not sent again,
// because a bench times round after round on the same inputs.
package isolate
