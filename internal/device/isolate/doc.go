// Package isolate runs a machine in a child process.
//
// A kernel under test can crash, hang, or leave a GPU context that nothing more can be done with.
// None of it can be undone inside a process, so each variant gets a process of its own: the program
// starts itself again as a server of one machine (Serve), and talks to it over two pipes (Start).
// What ends the child ends that variant, and the error says what it was: a fault that the driver
// named, a crash with its signal, or a time limit that passed.
//
// Both ends are the same program, so the messages are Go values in gob. Images, inputs and outputs
// travel behind them as they are, and what the last request had is not sent again: a bench asks for
// turn after turn with the same inputs.
package isolate
